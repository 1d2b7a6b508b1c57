"""A store whose database is damaged: set it aside, make a new one from the values' own files."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import diskcache
from filelock import FileLock

from poskernel_core.storage.disk import DATABASE, Existing, key_of

__all__ = ["Damaged", "check", "is_damage", "is_full", "rebuild"]

NOTICE = "The store's list of results was damaged and has been made anew; {kept} results were kept."
ASIDE = "damaged"
COMPANIONS = ("", "-wal", "-shm")
JUST_NOW = 10.0
FULL = (errno.ENOSPC, errno.EDQUOT)
# SQLite's primary result codes.
CORRUPT, SQLITE_FULL, NOT_A_DATABASE = 11, 13, 26


class Damaged(Exception):
    """The database does not hold together."""


def is_full(error: BaseException) -> bool:
    """Tell whether an error means that the disk has no room."""
    if isinstance(error, sqlite3.Error):
        return _code(error) == SQLITE_FULL
    return isinstance(error, OSError) and error.errno in FULL


def is_damage(error: BaseException) -> bool:
    """Tell whether an error means that the database itself is damaged."""
    if not isinstance(error, sqlite3.Error):
        return isinstance(error, Damaged | UnicodeDecodeError)
    words = str(error)
    lost = words.startswith("no such") or "decode to UTF-8" in words
    return lost or _code(error) in (CORRUPT, NOT_A_DATABASE)


def _code(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def check(cache: diskcache.Cache) -> None:
    """Read the database of an opened cache from end to end.

    Raises:
        Damaged, sqlite3.Error: it does not hold together.
    """
    with contextlib.closing(sqlite3.connect(Path(cache.directory) / DATABASE)) as database:
        (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
        (count,) = database.execute("SELECT count(*) FROM Cache").fetchone()
    if found != "ok":
        raise Damaged(found)
    if count == 0 and any(map(_left_behind, _values(Path(cache.directory)))):
        raise Damaged("it lists none of the values that are there")


def _left_behind(file: Path) -> bool:
    """Tell whether a value's file was not written just now, its row to follow."""
    try:
        return key_of(file) is not None and time.time() - file.stat().st_mtime > JUST_NOW
    except OSError:
        return False


def rebuild(
    directory: Path, opened: int | None, make: Callable[[], diskcache.Cache]
) -> tuple[diskcache.Cache, str | None]:
    """Return a cache that works, made by ``make``; and what was done, in a sentence.

    The damaged database stays next to it under another name. Of several processes that find the
    damage, the first does the work: ``opened`` is the number of the file found damaged (None where
    it could not even be opened).

    Raises:
        OSError, sqlite3.Error: the directory cannot be written.
    """
    with FileLock(directory / "rescue.lock"):
        database = directory / DATABASE
        if opened is not None and database.exists() and database.stat().st_ino != opened:
            return make(), None
        if opened is None:
            with contextlib.suppress(Exception):
                cache = make()
                check(cache)
                return cache, None
        _set_aside(directory)
        cache = make()
        kept = _adopt(cache, directory)
        notice = NOTICE.format(kept=kept)
        print(notice, file=sys.stderr)
        return cache, notice


def _set_aside(directory: Path) -> None:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    for companion in COMPANIONS:
        file = directory / f"{DATABASE}{companion}"
        if file.exists():
            file.rename(directory / f"{DATABASE}.{ASIDE}-{stamp}{companion}")


def _adopt(cache: diskcache.Cache, directory: Path) -> int:
    """Enter every value's file, the latest of a key; remove what no key is known of."""
    latest: dict[str, Path] = {}
    for file in sorted(_values(directory), key=lambda file: file.stat().st_mtime_ns):
        key = key_of(file)
        if key is None:
            file.unlink()
            continue
        if key in latest:
            latest[key].unlink()
        latest[key] = file
    for key, file in latest.items():
        name = file.relative_to(directory).as_posix()
        cache.set(key, Existing(name, file.stat().st_size), retry=True)
    return len(latest)


def _values(directory: Path) -> Iterator[Path]:
    return directory.glob("*/**/*.val")
