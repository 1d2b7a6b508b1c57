"""Answers for assistants: JSON that fits, which ends in what it was computed on and a link.

Whatever comes out of documents is a string of the JSON, so that no token reads as an instruction.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from poskernel_core.analyses.definitions import errors_of
from poskernel_core.analyses.views import finding_of
from poskernel_core.common.result import Result
from poskernel_core.export.files import signature
from poskernel_core.export.notebook import page_address

MAX_BYTES = 20_000
"""Most bytes of an answer's text."""

MAX_ROWS = 60
"""Most rows of a table."""

MAX_LETTERS = 1000
"""Most letters of one text; of a link, four times as many."""

Fields = dict[str, Any]


def written(fields: Mapping[str, Any], most: int = MAX_ROWS) -> str:
    """Return fields as JSON, a line for each; lists are cut to ``most`` entries, and to fit."""
    lines = [f"{json.dumps(name)}: {_json(_cut(field, most))}" for name, field in fields.items()]
    text = "{{{}}}".format(",\n ".join(lines))
    return text if len(text.encode()) <= MAX_BYTES or not most else written(fields, most // 2)


def answer(result: Result, address: str, **fields: Any) -> Fields:
    """Return the fields of an answer: the finding, ``fields``, errors, what it is of, and a link.

    Without fields, these are all numbers and texts of the result.
    """
    link = page_address(result, address)
    if len(link) > 4 * MAX_LETTERS:
        link = f"{address}/?show={result.analysis} (type the text there again)"
    entries = {
        "finding": finding_of(result),
        **(fields or {"numbers": _single(result), "tables": _tables(result)}),
        "errors": errors_of(result),
        "computed_on": f"{signature(result)}; {result.provenance.get('date', 'no date')}",
        "link": link,
    }
    return {name: field for name, field in entries.items() if field}


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], cut: str = "") -> Fields:
    """Return a table; ``cut`` says which rows these are, if there are more."""
    return {"columns": columns, "rows": rows} | ({"cut": cut} if cut else {})


def number(result: Result, name: str, place: tuple[int, ...]) -> Any:
    """Return a number, or with an interval ``[number, low, high]``; None where it is undefined."""
    parts = [getattr(result, part) for part in ("values", "lows", "highs")]
    every = [_rounded(part[name][place]) for part in parts if name in part]
    return every if len(every) > 1 and None not in every else every[0]


def _single(result: Result) -> Fields:
    names = [name for name in (*result.values, *result.texts) if not result.axes[name]]
    return {f"{name} ({result.units[name]})": _cell(result, name, ()) for name in names}


def _tables(result: Result) -> list[Fields]:
    """Return values and texts by their axes."""
    tables: dict[tuple[str, ...], list[str]] = {}
    for name in (*result.values, *result.texts):
        if axes := result.axes[name]:
            tables.setdefault(axes, []).append(name)
    return [_table(result, axes, names) for axes, names in tables.items()]


def _table(result: Result, axes: tuple[str, ...], names: list[str]) -> Fields:
    """Return values and texts that have the same axes; of too many rows, the largest."""
    array = {**result.texts, **result.values}[names[0]]
    along = [text_name for text_name in result.texts if result.axes[text_name] > () and
             {*result.axes[text_name]} < {*axes}]  # fmt: skip
    places, cut = list(range(array.size)), ""
    if array.size > MAX_ROWS:
        if array.dtype.kind == "f":
            sizes = np.nan_to_num(np.abs(array.ravel()), nan=-1.0)
            places = np.argsort(-sizes, kind="stable")[:MAX_ROWS].tolist()
        ways = " or ".join(f"one {axis}" for axis in ("head", "query") if axis in axes)
        cut = f"{MAX_ROWS} of {array.size:,} rows, the largest {names[0]} first" + (
            f": ask for {ways}" * bool(ways)
        )
    rows = []
    for flat in places[:MAX_ROWS]:
        at = dict(zip(axes, map(int, np.unravel_index(flat, array.shape)), strict=True))
        cells = [int(result.coordinates.get(axis, range(n + 1))[n]) for axis, n in at.items()]
        for name in (*along, *names):
            cells.append(_cell(result, name, tuple(at[axis] for axis in result.axes[name])))
        rows.append(cells)
    return table([*axes, *along, *(f"{name} ({result.units[name]})" for name in names)], rows, cut)


def _cell(result: Result, name: str, place: tuple[int, ...]) -> Any:
    """Return a text, a label, or a number."""
    if name in result.texts:
        return str(result.texts[name][place])
    if name in result.labels:
        return dict(enumerate(result.labels[name])).get(int(result.values[name][place]))
    return number(result, name, place)


def _rounded(value: Any) -> float | None:
    """Return a number with four significant digits; a whole one as it is."""
    if not np.isfinite(value):
        return None
    integral = float(value).is_integer() and abs(value) < 1e9
    return int(value) if integral else float(f"{float(value):.4g}")


def _cut(field: Any, most: int) -> Any:
    """Return a field whose lists have ``most`` entries, and whose texts are not too long."""
    if isinstance(field, dict):
        return {name: _cut(part, most) for name, part in field.items()}
    if isinstance(field, list):
        more = [f"{len(field) - most:,} more"] if len(field) > most else []
        return [*(_cut(item, most) for item in field[:most]), *more]
    if isinstance(field, str) and len(field) > 4 * MAX_LETTERS:
        return f"{field[:MAX_LETTERS]}…"
    return field


def _json(field: Any) -> str:
    text = json.dumps(field, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()  # half a character
