"""How the store's bytes lie on the disk: one file a value, named after its key; never a pickle.

diskcache keeps keys, sizes and ages in an SQLite database. Its values lie in files whose names
begin with their keys, so that the database can be made anew from them (:mod:`~.rescue`).
"""

from __future__ import annotations

import contextlib
import re
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import diskcache
from diskcache.core import MODE_BINARY

__all__ = [
    "DATABASE",
    "BytesOnly",
    "Existing",
    "key_of",
    "peek",
    "peek_files",
    "peek_keys",
    "peek_sizes",
    "peek_totals",
]

DATABASE = "cache.db"
NAMED = re.compile(r"(?P<key>[A-Za-z0-9_-]{1,128})\.[0-9a-f]{16}\.val")


@dataclass(frozen=True)
class Existing:
    """A value whose file is in the directory already; storing it copies nothing."""

    filename: str
    size: int


class BytesOnly(diskcache.Disk):
    """A disk that stores bytes under text keys, and refuses to read anything else."""

    _written = threading.local()

    def put(self, key: str) -> tuple[str, bool]:
        """Return a text key as it stands in the database."""
        if not isinstance(key, str):
            raise TypeError(f"a key is text, not {type(key).__name__}")
        self._written.file = None
        return key, True

    def get(self, key: Any, raw: int) -> str:
        """Return a key of the database, if it is text."""
        if not raw or not isinstance(key, str):
            raise ValueError("the store holds a key that is not text")
        return key

    def store(self, value: bytes | Existing, read: bool, key: Any = None) -> tuple[Any, ...]:
        """Write a value to a file of its own; return size, mode, file name and no inline value."""
        if isinstance(value, Existing):
            return value.size, MODE_BINARY, value.filename, None
        if not isinstance(value, bytes):
            raise TypeError(f"a value is bytes, not {type(value).__name__}")
        filename, path = self.filename(key)
        self._written.file = Path(path)
        self._write(path, iter((value,)), "xb")
        return len(value), MODE_BINARY, filename, None

    def take_back(self) -> None:
        """Remove the file that this thread wrote last: its entry did not come about."""
        file = getattr(self._written, "file", None)
        if file is not None:
            file.unlink(missing_ok=True)

    def filename(self, key: Any = None, value: Any = None) -> tuple[str, str]:
        """Return the name of a new file, relative and whole, that begins with the key."""
        token = secrets.token_hex(8)
        name = f"{token[:2]}/{key}.{token}.val"
        if not NAMED.fullmatch(f"{key}.{token}.val"):
            name = f"{token[:2]}/{token}.val"
        return name, str(Path(self._directory) / name)

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> bytes:
        """Return the bytes of an entry; none where its file is lost or elsewhere, or holds others.

        Raises:
            OSError: the file is there and cannot be read now.
        """
        if mode == MODE_BINARY and filename:
            path = (Path(self._directory) / filename).resolve()
            if path.is_relative_to(Path(self._directory).resolve()) and path.is_file():
                return path.read_bytes()
        return b""

    def remove(self, file_path: str) -> None:
        """Remove a value's file; one outside the directory is left alone."""
        path = (Path(self._directory) / file_path).resolve()
        if path.is_relative_to(Path(self._directory).resolve()):
            super().remove(file_path)


def key_of(file: Path) -> str | None:
    """Return the key that a value's file is named after, or None."""
    found = NAMED.fullmatch(file.name)
    return found["key"] if found else None


def peek(directory: Path, key: str) -> bytes | None:
    """Return a value without writing anything, not even that it was read.

    Raises:
        sqlite3.Error, OSError: the database or the entry cannot be read.
    """
    with _reading(directory) as database:
        row = database.execute(
            "SELECT mode, filename FROM Cache WHERE key = ? AND raw = 1", (key,)
        ).fetchone()
    if row is None:
        return None
    mode, filename = row
    return BytesOnly(str(directory)).fetch(mode, filename, None, read=False)


def peek_keys(directory: Path) -> list[str]:
    """Return all keys, ascending, without writing anything.

    Raises:
        sqlite3.Error: the database cannot be read.
    """
    with _reading(directory) as database:
        rows = database.execute(
            "SELECT key FROM Cache WHERE raw = 1 AND typeof(key) = 'text' ORDER BY key"
        ).fetchall()
    return [key for (key,) in rows]


def peek_totals(directory: Path) -> tuple[int, int]:
    """Return the number of entries and the bytes of their values, without writing anything.

    Raises:
        sqlite3.Error: the database cannot be read.
    """
    with _reading(directory) as database:
        rows = dict(
            database.execute("SELECT key, value FROM Settings WHERE key IN ('count', 'size')")
        )
    return int(rows["count"]), int(rows["size"])


def peek_sizes(directory: Path, prefix: str) -> list[tuple[str, int]]:
    """Return the keys that begin with a prefix, the latest entry first, with the bytes of each.

    Raises:
        sqlite3.Error: the database cannot be read.
    """
    with _reading(directory) as database:
        rows: list[tuple[str, int]] = database.execute(
            "SELECT key, size FROM Cache WHERE raw = 1 AND key >= ? AND key < ? "
            "ORDER BY store_time DESC, rowid DESC",
            (prefix, prefix + "\U0010ffff"),
        ).fetchall()
    return rows


def peek_files(directory: Path) -> list[tuple[str, Path]]:
    """Return all keys, the latest entry first, with the files of their values.

    Raises:
        sqlite3.Error: the database cannot be read.
    """
    root = directory.resolve()
    with _reading(directory) as database:
        rows = database.execute(
            "SELECT key, filename FROM Cache WHERE raw = 1 AND typeof(key) = 'text' "
            "AND filename IS NOT NULL ORDER BY store_time DESC"
        ).fetchall()
    files = [(key, (root / name).resolve()) for key, name in rows]
    return [(key, file) for key, file in files if file.is_relative_to(root)]


@contextlib.contextmanager
def _reading(directory: Path) -> Iterator[sqlite3.Connection]:
    """Open the database for reading, also where its directory cannot be written."""
    address = (directory.resolve() / DATABASE).as_uri()
    try:
        database = sqlite3.connect(f"{address}?mode=ro", uri=True)
        database.execute("SELECT 1 FROM Cache LIMIT 1")
    except sqlite3.OperationalError:  # its log needs a file beside it, and there can be none
        database = sqlite3.connect(f"{address}?mode=ro&immutable=1", uri=True)
    with contextlib.closing(database):
        yield database
