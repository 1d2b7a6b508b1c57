"""The store's disk layout: one file per value, named after its key; never a pickle.

diskcache keeps keys, sizes and ages in an SQLite database. A damaged database is rebuilt from the
file names.
"""

import re
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import diskcache
from diskcache.core import MODE_BINARY

from poskernel_core.common.errors import StoreFailed

DATABASE = "cache.db"
NAMED = re.compile(r"[0-9a-f]{2}/(?P<key>[^/\\]{1,128})\.[0-9a-f]{16}\.val")
"""The relative path of a value's file."""


class BytesOnly(diskcache.Disk):
    """Stores bytes under text keys and refuses everything else, so that nothing is unpickled."""

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

    def store(self, value: bytes | Path, read: bool, key: Any = None) -> tuple[Any, ...]:
        """Write bytes to a new file; for a path of an existing file, only register its name."""
        if isinstance(value, Path):
            name = value.relative_to(self._directory).as_posix()
            return value.stat().st_size, MODE_BINARY, name, None
        if not isinstance(value, bytes):
            raise TypeError(f"a value is bytes, not {type(value).__name__}")
        name, path = self.filename(key)
        try:
            self._write(path, iter((value,)), "xb")
        except OSError:
            Path(path).unlink(missing_ok=True)
            raise
        return len(value), MODE_BINARY, name, None

    def filename(self, key: Any = None, value: Any = None) -> tuple[str, str]:
        """Return relative and absolute path of a new file whose name starts with the key."""
        token = secrets.token_hex(8)
        name = f"{token[:2]}/{key}.{token}.val"
        if not NAMED.fullmatch(name):
            raise ValueError(f"no file can be named after the key {key!r}")
        return name, str(Path(self._directory) / name)

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> bytes:
        """Return the bytes of a value; empty if its file is missing or has a foreign name.

        Raises:
            StoreFailed: the file exists but cannot be read now.
        """
        return read_value(Path(self._directory), filename if mode == MODE_BINARY else None)

    def remove(self, file_path: str) -> None:
        """Remove a value's file; files with other names are left alone."""
        if NAMED.fullmatch(file_path):
            super().remove(file_path)


def read_value(directory: Path, name: str | None) -> bytes:
    """Return the bytes of a value's file; empty if it is missing or has a foreign name.

    Raises:
        StoreFailed: the file exists but cannot be read now.
    """
    if not name or not NAMED.fullmatch(name):
        return b""
    try:
        return (directory / name).read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return b""
    except OSError as error:
        raise StoreFailed(f"A file of the store cannot be read ({error.strerror}).") from error


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


def index(cache: diskcache.Cache) -> int:
    """Register the latest value file of each key under that key; return the number of keys."""
    files = Path(cache.directory).glob("??/*.val")
    with cache.transact(retry=True):
        for file in sorted(files, key=lambda file: file.stat().st_mtime_ns):
            found = NAMED.fullmatch(f"{file.parent.name}/{file.name}")
            if found:
                cache.set(found["key"], file)
    return len(cache)
