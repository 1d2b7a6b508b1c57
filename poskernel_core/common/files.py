"""Read files of unknown origin: existence checks, zip damage, JSON of limited size and depth."""

import lzma
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from poskernel_core.common.errors import BadRequest, InvalidField

MAX_JSON_BYTES = 10 * 2**20

ZIP_DAMAGE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, KeyError, InvalidField,
    NotImplementedError, OSError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""Exceptions that reading a corrupt zip file, or its contents, can raise."""


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder."""
    return _look(path, path.is_dir)


def is_file(path: Path) -> bool:
    """Return whether a path is a file."""
    return _look(path, path.is_file)


def _look(path: Path, ask: Callable[[], bool]) -> bool:
    try:
        return ask()
    except OSError as error:
        raise BadRequest(
            f"Cannot look for {str(path)!r}: {error.strerror}; ask for the right to read its "
            "folder, or name another."
        ) from error


def may_not_read(path: Path, error: PermissionError) -> BadRequest:
    """Return the error for a file that exists but may not be read."""
    return BadRequest(
        f"Cannot read {str(path)!r}: {error.strerror}; ask for the right to read it, or name "
        "another."
    )


def read_json(path: Path, most: int = MAX_JSON_BYTES) -> Any:
    """Return the value of a JSON file of at most ``most`` bytes.

    Raises:
        ValueError: too large, not UTF-8, not JSON, or nested too deeply.
        OSError: the file cannot be read for another reason.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(most + 1)
    except PermissionError as error:
        raise may_not_read(path, error) from error
    if len(data) > most:
        raise ValueError(f"it is larger than {most / 2**20:.0f} MB")
    return parse_json(data)


def read_object(path: Path, most: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Return the fields of a JSON file that holds an object.

    Raises:
        BadRequest, ValueError, OSError: as :func:`read_json`, or the value is not an object.
    """
    value = read_json(path, most)
    if not isinstance(value, dict):
        raise ValueError("it holds something else")
    return value


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: not UTF-8, not JSON, or nested too deeply.
    """
    try:
        return from_json(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    except ValueError as error:
        deep = "recursion limit" in str(error)
        raise ValueError("it is nested too deeply" if deep else f"not JSON: {error}") from error
