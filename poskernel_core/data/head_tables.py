"""Read tables that other tools made, with numbers for each head, as arrays ``[layer, head]``.

The formats are HeadVis' ``scatter_data.json``, retrieval-head JSON (``{"L-H": [...]}``),
DuoAttention's matrix (a row of numbers per layer), and any CSV or JSON with the columns layer and
head.
"""

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from poskernel_core.common.axes import PerHead
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.files import parse_json
from poskernel_core.common.specs import brief, plain_python

MAX_TABLE_BYTES = 5 * 2**20
MAX_COLUMNS = 64
MAX_PLACES = 1024
"""Most layers, and most heads per layer."""

MAX_NAME = 60
EXPECTED = (
    "expected HeadVis' scatter_data.json, retrieval-head JSON, a matrix of layers by heads, or a "
    "table with the columns layer and head"
)


@dataclass(frozen=True)
class HeadTable:
    """Columns of numbers per head.

    Attributes:
        source, kind: name of the file, and its format in words.
        columns: arrays ``[layer, head]`` by column name; NaN where the table has no number.
        model: the model named in the file; empty if it names none.
    """

    source: str
    kind: str
    columns: Mapping[str, PerHead] = field(repr=False)
    model: str = ""


@dataclass(frozen=True)
class _ParsedTable:
    """A parsed table: numbers by column and (layer, head); ``whole`` if it is a full matrix."""

    kind: str
    columns: Mapping[str, Mapping[tuple[int, int], float]]
    model: str = ""
    whole: bool = False


def read_head_table(path: str | Path, shape: tuple[int, int] | None = None) -> HeadTable:
    """Read a table from a file; ``shape`` is the model's ``(layers, heads)``.

    By default, the shape follows from the largest layer and head in the table.

    Raises:
        BadRequest: the file cannot be read, or is not a table of heads of this shape.
    """
    if shape is not None:
        shape = plain_python(shape)
        if not isinstance(shape, tuple) or [int, int] != [type(size) for size in shape]:
            raise BadRequest(f"Expected the shape (layers, heads) of a model, got {brief(shape)}.")
    try:
        path = Path(path)
        with path.open("rb") as stream:
            data = stream.read(MAX_TABLE_BYTES + 1)
    except TypeError as error:
        raise BadRequest(f"Expected the path of a table, got {brief(path)}.") from error
    except OSError as error:
        raise BadRequest(f"Cannot read {str(path)!r}: {error.strerror}.") from error
    return parse_head_table(data, path.name, shape)


def parse_head_table(data: bytes, name: str, shape: tuple[int, int] | None = None) -> HeadTable:
    """Parse a table from the content of the file ``name``; see :func:`read_head_table`."""
    if len(data) > MAX_TABLE_BYTES:
        raise _bad(name, f"it is larger than {MAX_TABLE_BYTES / 2**20:.0f} MB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _bad(name, f"it is not text: {EXPECTED}") from error
    if "\0" in text or not text.strip():
        raise _bad(name, f"it is {'not text' if text.strip() else 'empty'}: {EXPECTED}")
    try:
        rows = _of_json(text, name) if text.lstrip()[0] in "[{" else _of_lines(text, name)
    except ValueError as error:
        raise _bad(name, str(error)) from error
    return HeadTable(name, rows.kind, _laid_out(rows, name, shape), rows.model)


def _bad(name: str, why: str) -> BadRequest:
    return BadRequest(f"Cannot use the table {name[:MAX_NAME]!r}: {why}.")


def _of_json(text: str, name: str) -> _ParsedTable:
    try:
        value = parse_json(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON that can be read: {EXPECTED}") from error
    if isinstance(value, dict) and value and all(_head_of(key) for key in value):
        scores = {_head_of(key): _mean(number, key) for key, number in value.items()}
        return _ParsedTable(
            "retrieval-head scores", {_stem(name): {k: v for k, v in scores.items() if k}}
        )
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        headvis = {"self_attention_score", "qk_distance"} <= value[0].keys()
        return _of_records(value, "HeadVis" if headvis else "a table (JSON)")
    if isinstance(value, list) and value and all(isinstance(row, list) for row in value):
        return _of_matrix(value, name)
    raise ValueError(EXPECTED)


def _head_of(key: str) -> tuple[int, int] | None:
    match = re.fullmatch(r"\s*([0-9]{1,6})-([0-9]{1,6})\s*", key)
    return (int(match[1]), int(match[2])) if match else None


def _mean(value: Any, key: str) -> float:
    several = value if isinstance(value, list) else [value]
    numbers = [_number(item, f"head {key}") for item in several]
    return math.fsum(numbers) / len(numbers) if numbers else math.nan


def _of_lines(text: str, name: str) -> _ParsedTable:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("# ")]
    if not lines:
        raise ValueError(f"it holds comments alone: {EXPECTED}")
    divider = next((character for character in "\t,;" if character in lines[0]), None)
    parts = [line.split() for line in lines]
    if divider is not None:
        try:
            parts = list(csv.reader(io.StringIO("\n".join(lines)), delimiter=divider))
        except csv.Error as error:
            raise ValueError(f"it is not a table that can be read: {EXPECTED}") from error
    if all(map(_is_number, parts[0])):
        return _of_matrix(parts, name)
    if len(parts) == 1:
        raise ValueError(f"nothing follows its first line: {EXPECTED}")
    names = [heading.strip() for heading in parts[0]]
    _check_even(parts)
    return _of_records([dict(zip(names, row, strict=True)) for row in parts[1:]], "a table (CSV)")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_even(rows: Sequence[Sequence[Any]]) -> None:
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise ValueError(f"row {number} has {len(row)} columns, the first {len(rows[0])}")


def _of_matrix(rows: Sequence[Sequence[Any]], name: str) -> _ParsedTable:
    _check_even(rows)
    numbers = {
        (layer, head): _number(value, f"row {layer + 1}")
        for layer, row in enumerate(rows)
        for head, value in enumerate(row)
    }
    return _ParsedTable("a matrix of layers by heads", {_stem(name): numbers}, whole=True)


def _of_records(rows: list[dict[str, Any]], kind: str) -> _ParsedTable:
    called = {str(name).strip().lower(): name for name in rows[0]} if rows else {}
    if not {"layer", "head"} <= called.keys():
        columns = ", ".join(str(name)[:20] for name in list(called.values())[:8]) or "none"
        raise ValueError(f"{EXPECTED}; its columns are {columns}")
    places = [
        (_place(row.get(called["layer"]), "layer", i), _place(row.get(called["head"]), "head", i))
        for i, row in enumerate(rows, 1)
    ]
    place, times = Counter(places).most_common(1)[0]
    if times > 1:
        raise ValueError(f"it has {times} rows for L{place[0]}H{place[1]}")
    others = [name for key, name in called.items() if key not in ("layer", "head")]
    numeric, words = {}, []
    for name in others:
        values = [row.get(name) for row in rows]
        # An empty text is a missing number, not a word.
        if all(isinstance(v, str) and v.strip() and not _is_number(v) for v in values):
            words.append(name)
            continue
        numbers = [_number(value, f"column {name!r}") for value in values]
        numeric[str(name).strip()[:MAX_NAME]] = dict(zip(places, numbers, strict=True))
    model = next((str(rows[0][name]) for name in words if name.strip().lower() == "model"), "")
    if not numeric:
        raise ValueError("it has no column of numbers beside layer and head")
    if len(numeric) > MAX_COLUMNS:
        raise ValueError(f"it has {len(numeric)} columns of numbers; {MAX_COLUMNS} can be read")
    return _ParsedTable(kind, numeric, model)


def _place(value: Any, axis: str, row: int) -> int:
    number = value if isinstance(value, int) and not isinstance(value, bool) else None
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,6}(\.0)?\s*", value):
        number = int(float(value))
    if number is None or not 0 <= number < MAX_PLACES:
        raise ValueError(
            f"row {row} has {str(value)[:20]!r} as {axis}, expected 0 to {MAX_PLACES - 1}"
        )
    return number


def _number(value: Any, where: str) -> float:
    if value is None or (isinstance(value, str) and not value.strip()):
        return math.nan
    try:
        if isinstance(value, bool | list | dict):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{where} holds {str(value)[:20]!r}, which is not a number") from None
    return number if math.isfinite(number) else math.nan


def _stem(name: str) -> str:
    return Path(name).stem.replace("_", " ").strip()[:MAX_NAME] or "number"


def _laid_out(rows: _ParsedTable, name: str, shape: tuple[int, int] | None) -> dict[str, PerHead]:
    """Return the columns as arrays of the model's shape.

    A table that fills a rectangle of layers and heads must have exactly the model's shape; any
    other table may name some of the model's heads.
    """
    places = {place for column in rows.columns.values() for place in column}
    if not places:
        raise _bad(name, "it names no head")
    own = (1 + max(layer for layer, _ in places), 1 + max(head for _, head in places))
    if max(own) > MAX_PLACES:
        raise _bad(name, f"it has {own[0]} x {own[1]} heads; {MAX_PLACES} x {MAX_PLACES} at most")
    shape = shape or own
    complete = rows.whole or (len(places) == own[0] * own[1] and min(own) > 1)
    if (complete and own != shape) or own[0] > shape[0] or own[1] > shape[1]:
        expected, got = (f"{layers} layers of {heads} heads" for layers, heads in (shape, own))
        raise _bad(name, f"it is of another model: expected {expected}, got {got}")
    arrays = {column: np.full(shape, np.nan) for column in rows.columns}
    for column, numbers in rows.columns.items():
        arrays[column][tuple(zip(*numbers, strict=True))] = list(numbers.values())
    return arrays
