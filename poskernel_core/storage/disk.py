"""The store's disk: diskcache's, for bytes under text keys; never a pickle (CVE-2025-69872)."""

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import diskcache
from diskcache.core import MODE_BINARY

from poskernel_core.common.errors import StoreFailed

DATABASE, ASIDE = "cache.db", "damaged"
FOLDER = "[0-9a-f][0-9a-f]"
VALUE = re.compile(rf"(?:{FOLDER}/){{1,2}}[^/\\]+\.val")
"""The relative path of a value's file; one folder deep in stores of version 1.0.0."""


class BytesOnly(diskcache.Disk):
    """Stores bytes, each value in a file, and refuses everything else: nothing is unpickled."""

    def put(self, key: str) -> tuple[str, bool]:
        """Check a key; return it unchanged."""
        if not isinstance(key, str):
            raise TypeError(f"a key is text, not {type(key).__name__}")
        return key, True

    def get(self, key: Any, raw: int) -> str:
        """Return a key of the database; only text is accepted."""
        if not raw or not isinstance(key, str):
            raise ValueError("the store holds a key that is not text")
        return key

    def store(self, value: bytes, read: bool, key: Any = None) -> tuple[Any, ...]:
        """Write bytes to a new file, of which nothing is left if that fails."""
        name, path = self.filename(key, value)
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(value)
        except OSError:
            Path(path).unlink(missing_ok=True)
            raise
        return len(value), MODE_BINARY, Path(name).as_posix(), None

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> bytes:
        """Return the bytes of a value; none if its file is missing, or is not one of ours.

        Raises:
            StoreFailed: the file exists but cannot be read now.
        """
        if mode != MODE_BINARY or not VALUE.fullmatch(filename or ""):
            return b""
        try:
            return bytes(super().fetch(mode, filename, value, read=False))
        except (FileNotFoundError, IsADirectoryError):
            return b""
        except OSError as error:
            raise StoreFailed(f"A file of the store cannot be read ({error.strerror}).") from error

    def remove(self, file_path: str) -> None:
        """Remove a value's file; other files are left alone."""
        if VALUE.fullmatch(file_path):
            super().remove(file_path)


def select(directory: Path, query: str, *values: object) -> list[Any]:
    """Query the database; works in read-only directories too.

    Raises:
        sqlite3.Error: the database cannot be read.
    """
    address = (directory.resolve() / DATABASE).as_uri() + "?mode=ro"
    try:
        return _select(address, query, values)
    except sqlite3.OperationalError:  # the write-ahead log needs a file, which cannot be created
        return _select(f"{address}&immutable=1", query, values)


def _select(address: str, query: str, values: tuple[object, ...]) -> list[Any]:
    with closing(sqlite3.connect(address, uri=True)) as database:
        return database.execute(query, values).fetchall()


def set_aside(directory: Path) -> bool:
    """Move a database and its values into a folder of their own; return whether there were any."""
    found = [*directory.glob(f"{DATABASE}*"), *directory.glob(FOLDER)]
    if found:
        shutil.rmtree(directory / ASIDE, ignore_errors=True)
        (directory / ASIDE).mkdir()
    for each in found:
        each.rename(directory / ASIDE / each.name)
    return bool(found)
