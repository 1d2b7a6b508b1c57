"""What went wrong with a store: damage, or a sentence that says why it cannot be used."""

import os
import shutil
import sqlite3
from pathlib import Path

import diskcache

from poskernel_core.common.errors import NoSpace, ReadOnlyStore, StoreFailed
from poskernel_core.storage.disk import DATABASE

MIN_FREE = 2**18
"""Bytes that the database needs in addition to the data written."""

FAILURES = (OSError, sqlite3.Error, UnicodeDecodeError, diskcache.Timeout)


def is_damage(error: BaseException) -> bool:
    """Return whether an error means that the database is damaged, not busy, full or read-only."""
    told = str(error)
    return isinstance(error, UnicodeDecodeError) or (
        isinstance(error, sqlite3.DatabaseError)
        and (type(error) is sqlite3.DatabaseError or told.startswith("no such") or "UTF-8" in told)
    )


def failure(error: BaseException, directory: Path) -> StoreFailed:
    """Return the error that tells users why a store cannot be read or written."""
    if not os.path.isdir(directory):
        return StoreFailed(
            "The store's directory was removed, or something else has its name: whoever runs "
            "this server can put it back (POSKERNEL_CACHE)."
        )
    if found := no_room(directory, 0):
        return found
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
