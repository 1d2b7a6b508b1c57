"""The store's disk: diskcache's, for bytes under text keys; never a pickle (CVE-2025-69872).

And what can go wrong with it: damage, or a sentence that says why it cannot be used.
"""

import os
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import diskcache
from diskcache.core import MODE_BINARY

from poskernel_core.common.errors import NoSpace, ReadOnlyStore, StoreFailed

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
        """Return the bytes of a value; none if its file is missing, or is not one of ours."""
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
    paths = [*directory.glob(f"{DATABASE}*"), *directory.glob(FOLDER)]
    if paths:
        shutil.rmtree(directory / ASIDE, ignore_errors=True)
        (directory / ASIDE).mkdir()
    for path in paths:
        path.rename(directory / ASIDE / path.name)
    return bool(paths)


MIN_FREE = 2**18
"""Bytes that the database needs in addition to the data written."""

FAILURES = (OSError, sqlite3.Error, UnicodeDecodeError, diskcache.Timeout)


def is_damage(error: BaseException) -> bool:
    """Return whether an error means that the database is damaged, not busy, full or read-only."""
    message = str(error)
    return isinstance(error, UnicodeDecodeError) or (
        isinstance(error, sqlite3.DatabaseError)
        and (
            type(error) is sqlite3.DatabaseError
            or message.startswith("no such")
            or "UTF-8" in message
        )
    )


def failure(error: BaseException, directory: Path) -> StoreFailed:
    """Return the error that tells users why a store cannot be read or written."""
    if not os.path.isdir(directory):
        return StoreFailed(
            "The store's directory was removed, or something else has its name: whoever runs "
            "this server can put it back (POSKERNEL_CACHE)."
        )
    if room_error := no_room(directory, 0):
        return room_error
    if isinstance(error, diskcache.Timeout):
        return StoreFailed("The store is busy with another process: ask again in a moment.")
    return StoreFailed(f"The store cannot be read or written ({why(error)}).")


def no_room(directory: Path, size: int) -> StoreFailed | None:
    """Return the reason why ``size`` bytes cannot be written; None if they can."""
    database = directory / DATABASE
    if not all(os.access(place, os.W_OK) for place in (directory, database) if place.exists()):
        return ReadOnlyStore(
            "The store cannot be written: what is computed already is shown, nothing new can be; "
            "whoever runs this server can make its directory writable (POSKERNEL_CACHE)."
        )
    try:
        free = shutil.disk_usage(directory).free
    except OSError:
        return None
    if free >= size + MIN_FREE:
        return None
    return NoSpace(
        "No space is left on the disk that holds the store (POSKERNEL_CACHE): "
        f"{_megabytes(max(size, MIN_FREE))} are needed, {_megabytes(free)} are free; make room "
        "and ask again."
    )


def why(error: BaseException | None) -> str:
    """Return the system's words for an error."""
    return str(getattr(error, "strerror", None) or error)[:200]


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.3g} MB" if size < 1e9 else f"{size / 1e9:.3g} GB"
