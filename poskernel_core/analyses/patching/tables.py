"""Tables of pairs of prompts: CSV, JSONL or lists, as typed, dropped or given."""

import codecs
import csv
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.files import parse_json
from poskernel_core.common.rounding import counted
from poskernel_core.common.specs import MAX_TEXT_CHARACTERS, Spec
from poskernel_core.data.texts import MARK, reading

OTHER_NAMES = {"corrupted": "changed", "wrong": "other_answer"}
"""Names of columns in tables from elsewhere, and ours."""
DELIMITERS = ",;\t"
FILES = (".csv", ".tsv", ".jsonl", ".json")


class PromptPair(Spec):
    """A row: two prompts with their answers, and what they were made of, if known."""

    called = "pair"

    clean: str
    changed: str
    answer: str
    other_answer: str
    template: str = ""


COLUMNS = [name for name, field in PromptPair.model_fields.items() if field.is_required()]


def as_table(given: Any) -> str:
    """Return a set as canonical JSONL text, a row in each line.

    Args:
        given: a list of rows, each a dictionary; or the text of a table as CSV (with commas,
            semicolons or tabs), as JSONL, or as a JSON list.

    Raises:
        ValueError: with a sentence, if it is something else, or too long.
    """
    rows = [_row(row, number) for number, row in enumerate(_rows_of(given), 1)]
    if not rows:
        raise ValueError("expected a table with rows, got none")
    entries = (row.model_dump(exclude_defaults=True) for row in rows)
    table = "\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    if len(table) > MAX_TEXT_CHARACTERS:
        raise ValueError(
            f"expected up to {MAX_TEXT_CHARACTERS:,} characters, got {len(table):,} in "
            f"{counted(len(rows), 'pair')}: about {fitting(table, MAX_TEXT_CHARACTERS):,} of them "
            "would fit"
        )
    return table


def fitting(table: str, characters: int) -> int:
    """Return about how many rows of a canonical table fit into so many characters."""
    return (table.count("\n") + 1) * characters // len(table)


def read_table(table: str) -> list[PromptPair]:
    """Return the rows of a canonical table."""
    return [PromptPair(**json.loads(line)) for line in table.split("\n") if line]


def table_or_file(given: Any) -> Any:
    """Return what was given for a set; of the path of a file, its text.

    Raises:
        BadRequest: there is no such file, or it cannot be read.
    """
    if not isinstance(given, str) or "\n" in given or not given.lower().endswith(FILES):
        return given
    path = Path(given).expanduser()
    with reading(path):
        return decoded(path.read_bytes())


def decoded(data: bytes) -> str:
    """Return the text of a file that was dropped.

    Raises:
        ValueError: it is no text in UTF-8, or in UTF-16 with a byte order mark.
    """
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError("expected a table as text in UTF-8, got something else") from error


def _rows_of(given: Any) -> list[Any]:
    if isinstance(given, list | tuple):
        return [*given]
    if not isinstance(given, str):
        raise ValueError(f"expected a table or a list of rows, got {str(given)[:60]!r}")
    text = given.removeprefix(MARK).lstrip("\r\n")
    try:
        if text.lstrip().startswith("["):
            return [*parse_json(text)]
        if text.lstrip().startswith("{"):
            return [parse_json(line) for line in re.split("[\r\n]", text) if line.strip()]
        header = text.partition("\n")[0]
        delimiter = max(DELIMITERS, key=header.count)
        read = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        names, *lines = [row for row in read if any(row)] or [[]]
    except (ValueError, csv.Error) as error:
        raise ValueError(f"expected a table as CSV or JSONL, and it is {error}") from error
    names = [name.strip().lower() for name in names]
    if missing := [column for column in COLUMNS if column not in map(_ours, names)]:
        raise ValueError(
            f"expected a table with the columns {', '.join(COLUMNS)} in its first line, got "
            f"{header[:60]!r} without {', '.join(missing)}"
        )
    for number, cells in enumerate(lines, 1):
        if len(cells) != len(names):
            raise ValueError(
                f"row {number} has {counted(len(cells), 'cell')}, and there are "
                f"{counted(len(names), 'column')}: put texts with {delimiter!r} in quotes"
            )
    return [dict(zip(names, cells, strict=True)) for cells in lines]


def _ours(name: str) -> str:
    return OTHER_NAMES.get(name, name)


def _row(given: Any, number: int) -> PromptPair:
    if not isinstance(given, Mapping):
        raise ValueError(f"row {number}: expected {', '.join(COLUMNS)} by name, got {given!r:.60}")
    fields = {_ours(name): value for name, value in given.items() if value is not None}
    try:
        return PromptPair(
            **{name: fields[name] for name in PromptPair.model_fields & fields.keys()}
        )
    except BadRequest as error:
        raise ValueError(f"row {number}: {str(error).removesuffix('.')}") from error
