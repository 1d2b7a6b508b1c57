"""The content-addressed store: each entry's key is a hash of everything that determines it.

diskcache keeps the bytes, sizes and ages. It never uses pickle (CVE-2025-69872: anyone who can
write to a cache directory could run code in its readers). A value is a SHA-256 followed by one
safetensors blob (arrays, with a JSON header and the key as metadata). **Unreadable counts as
missing**: an entry that is damaged, tampered with, of another layout or of another key is dropped
when it is read. If it cannot be dropped, ``has`` returns False for it.

Reading works as far as possible: on a full disk, in a read-only directory, with a damaged database.
A failed write raises an error with a one-sentence message and is attempted again the next time.
"""

import contextlib
import errno
import os
import shutil
import sqlite3
import sys
import threading
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any, TypeVar

import diskcache
import numpy as np
from filelock import FileLock, Timeout

from poskernel_core.common.errors import BadRequest, NoSpace, ReadOnlyStore, StoreFailed
from poskernel_core.common.folders import default_directory
from poskernel_core.common.settings import checked_gb, settings
from poskernel_core.common.specs import brief
from poskernel_core.storage.disk import DATABASE, BytesOnly, index, read_value, select
from poskernel_core.storage.encoding import Entry, decode, encode, read_header
from poskernel_core.storage.shipped import shipped

T = TypeVar("T")

MIN_FREE = 2**18
"""Bytes that the database needs in addition to the data written."""

NOTICE = "The store's list of results was damaged and has been rebuilt; {kept} results were kept."
FAILURES = (OSError, sqlite3.Error, UnicodeDecodeError, diskcache.Timeout)
FULL = {errno.ENOSPC, errno.EDQUOT}, {sqlite3.SQLITE_FULL}
UNWRITABLE = (
    {errno.EROFS, errno.EACCES, errno.EPERM},
    {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM},
)
DAMAGED: tuple[set[int], set[int]] = set(), {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
"""Error numbers of the system, and error codes of SQLite."""


class Store:
    """Arrays with a JSON header, by key; safe for threads and processes.

    Args:
        directory: where the entries are stored; created if missing.
        limit_gb: size above which the least recently used entries are evicted
            (default ``POSKERNEL_CACHE_GB``, else 8).

    Attributes:
        limit: the size limit in bytes.
        notice: a sentence about a repaired store, for display; None if all is well.

    Raises:
        BadRequest: the directory cannot be used, or the limit is not a valid size.
    """

    def __init__(self, directory: str | Path | None = None, limit_gb: float | None = None) -> None:
        if not isinstance(directory, str | os.PathLike | None):
            raise BadRequest(f"Expected a directory for the store, got {brief(directory)}.")
        self.directory = Path(default_directory() if directory is None else directory)
        self.notice: str | None = None
        gigabytes = settings().cache_gb if limit_gb is None else checked_gb(limit_gb)
        self.limit = int(gigabytes * 2**30)
        self._shipped = shipped()
        self._opening = threading.Lock()
        self._cache: diskcache.Cache | None = None
        self._number: int | None = None
        self._damaged: int | None = None
        self._unreadable: set[str] = set()  # keys of damaged entries that could not be dropped
        try:
            self._current()
        except StoreFailed as error:
            if _number(self.directory) is None:
                raise BadRequest(
                    f"The store at {str(self.directory)!r} cannot be used ({_why(error.__cause__)})"
                    ": set POSKERNEL_CACHE to a directory that can be written."
                ) from error

    def put(self, key: str, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Write an entry atomically; after a crash there is the old entry or none.

        Raises:
            NoSpace, ReadOnlyStore, StoreFailed: it cannot be written; nothing of it remains.
        """
        self.put_bytes(key, encode(key, header, arrays))

    def get(self, key: str) -> Entry | None:
        """Return header and arrays; None if the entry is missing, damaged or tampered with.

        Falls back to the shipped entries (:mod:`poskernel_core.storage.shipped`).
        """
        found = self._read(key)
        return self._shipped.get(key) if found is None else found[1]

    def put_bytes(self, key: str, data: bytes) -> None:
        """Write bytes that another store's :meth:`get_bytes` returned (already checked).

        Raises:
            NoSpace, ReadOnlyStore, StoreFailed: they cannot be written.
        """
        self.make_room(len(data))
        self._do(lambda cache: cache.set(key, data))

    def get_bytes(self, key: str) -> bytes | None:
        """Return an entry's bytes; None if it is missing, damaged or tampered with."""
        found = self._read(key)
        return None if found is None else found[0]

    def _read(self, key: str) -> tuple[bytes, Entry] | None:
        """Return an entry as bytes and decoded; an unreadable entry is dropped."""
        try:
            data = self._do(lambda cache: cache.get(key))
        except StoreFailed:
            data = self._peek(key)
        if data is None:
            return None
        entry = decode(data, key)
        if entry is None:
            self._drop_unreadable(key)
            return None
        self._unreadable.discard(key)
        return data, entry

    def _peek(self, key: str) -> bytes | None:
        """Return the bytes of a value without updating its access time; empty if unreadable."""
        try:
            name = self._file_of(key)
            return None if name is None else read_value(self.directory, name)
        except StoreFailed:
            return b""

    def _file_of(self, key: str) -> str | None:
        rows = self._select("SELECT filename FROM Cache WHERE key = ? AND raw = 1", key)
        return rows[0][0] if rows else None

    def _drop_unreadable(self, key: str) -> None:
        def drop(cache: diskcache.Cache) -> None:
            with cache.transact():
                data = cache.get(key)  # another process may have replaced it
                if data is not None and decode(data, key) is None:
                    cache.delete(key)

        try:
            self._do(drop)
        except StoreFailed:
            self._unreadable.add(key)

    def has(self, key: str) -> bool:
        """Return whether there is an entry, without reading it.

        Damage is detected only on reading; from then on the entry counts as missing.
        """
        if self._shipped.has(key):
            return True
        if key in self._unreadable:
            return self._read(key) is not None
        try:
            return self._do(lambda cache: key in cache)
        except StoreFailed:
            with contextlib.suppress(StoreFailed):
                return self._file_of(key) is not None
            return False

    def drop(self, key: str) -> None:
        """Remove an entry if it exists and can be removed."""
        with contextlib.suppress(StoreFailed):
            self._do(lambda cache: cache.delete(key))

    def keys(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys with this prefix, in order.

        Raises:
            StoreFailed: the store cannot be read.
        """
        yield from sorted(key for key, _, _ in self._rows(prefix))

    def newest(self, prefix: str) -> list[tuple[str, int]]:
        """Return the keys with this prefix and their sizes in bytes, newest first."""
        try:
            return [(key, size) for key, size, _ in self._rows(prefix)]
        except StoreFailed:
            return []

    def headers(self, known: Container[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield key and header of every entry whose key is not in ``known``, then shipped entries.

        Arrays are not read and checksums not verified; :meth:`get` does both.
        """
        with contextlib.suppress(StoreFailed):
            for key, _, name in self._rows():
                if key in known:
                    continue
                with contextlib.suppress(OSError), (self.directory / name).open("rb") as stream:
                    if (header := read_header(stream.read)) is not None:
                        yield key, header
        yield from self._shipped.headers(known)

    def size(self) -> int:
        """Return the total size of all values in bytes."""
        return int(self._select("SELECT total(size) FROM Cache")[0][0])

    def entries(self) -> int:
        """Return the number of entries, without shipped ones."""
        return int(self._select("SELECT count(*) FROM Cache")[0][0])

    def make_room(self, size: int) -> None:
        """Check that ``size`` bytes can be written, before computing them.

        Raises:
            NoSpace, ReadOnlyStore, StoreFailed: the bytes cannot be written.
        """
        self._current()
        if not os.access(self.directory, os.W_OK):
            raise _read_only()
        if self._free() < size + MIN_FREE:
            raise self._no_space(size)

    @contextlib.contextmanager
    def lock(self, name: str, waiting: Callable[[], None]) -> Iterator[None]:
        """Hold an inter-process lock; call ``waiting`` twice a second while waiting for it.

        Raises:
            NoSpace, ReadOnlyStore, StoreFailed: the lock cannot be created.
        """
        place = self.directory / "locks"
        try:
            lock = FileLock(place / f"{name}.lock")
            while True:
                place.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(Timeout, FileNotFoundError):  # the folder may be removed
                    lock.acquire(timeout=0.5)
                    break
                waiting()
        except OSError as error:
            raise self._failure(error) from error
        try:
            yield
        finally:
            lock.release()

    def close(self) -> None:
        """Close the database connections of this thread."""
        if self._cache is not None:
            self._cache.close()

    def _do(self, act: Callable[[diskcache.Cache], T]) -> T:
        """Run an operation on the database; if it is damaged, rebuild it and retry once."""
        cache = self._current()
        try:
            return act(cache)
        except FAILURES as error:
            if not _is_damage(error):
                raise self._failure(error) from error
        with self._opening:
            if self._cache is cache:
                self.close()
                self._cache, self._damaged = None, self._number
        try:
            return act(self._current())
        except FAILURES as error:
            raise self._failure(error) from error

    def _select(self, query: str, *values: object) -> list[Any]:
        """Query the database; works also if nothing can be written."""
        try:
            return self._do(lambda _: select(self.directory, query, *values))
        except StoreFailed as failure:
            try:
                return select(self.directory, query, *values)
            except FAILURES:
                raise failure from failure.__cause__

    def _rows(self, prefix: str = "") -> list[tuple[str, int, str]]:
        """Return key, size and file of the entries whose keys have this prefix, newest first."""
        return self._select(
            "SELECT key, size, filename FROM Cache WHERE raw = 1 AND filename IS NOT NULL "
            "AND key >= ? AND key < ? ORDER BY store_time DESC, rowid DESC",
            prefix, prefix + "\U0010ffff",
        )  # fmt: skip

    def _current(self) -> diskcache.Cache:
        """Return the open database, reopening it if the file in the directory was replaced.

        Raises:
            StoreFailed: it cannot be opened for writing.
        """
        with self._opening:
            if self._cache is None or _number(self.directory) != self._number:
                try:
                    self._cache = self._open()
                except FAILURES as error:
                    self._cache = None
                    raise self._failure(error) from error
                self._number, self._damaged = _number(self.directory), None
            assert self._cache is not None
            return self._cache

    def _open(self) -> diskcache.Cache:
        """Open the database; a missing or damaged one is rebuilt from the values' files."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with FileLock(self.directory / "rescue.lock"):  # one process rebuilds it, the others wait
            if _number(self.directory) not in (None, self._damaged):
                try:
                    return self._make()
                except Exception as error:
                    if isinstance(error, FAILURES) and not _is_damage(error):
                        raise
            for companion in ("", "-wal", "-shm"):
                (self.directory / f"{DATABASE}{companion}").unlink(missing_ok=True)
            cache = self._make()
            if kept := index(cache):
                self.notice = NOTICE.format(kept=kept)
                print(self.notice, file=sys.stderr)
            return cache

    def _make(self) -> diskcache.Cache:
        return diskcache.Cache(
            str(self.directory),
            disk=BytesOnly,
            size_limit=self.limit,
            eviction_policy="least-recently-used",
            sqlite_journal_mode="wal",
        )

    def _failure(self, error: BaseException) -> StoreFailed:
        if _is_one_of(error, *FULL) or self._free() < MIN_FREE:
            return self._no_space(0)
        if isinstance(error, diskcache.Timeout):
            return StoreFailed("The store is busy with another process: ask again in a moment.")
        if not os.path.isdir(self.directory):
            return StoreFailed(
                "The store's directory was removed, or something else has its name: whoever runs "
                "this server can put it back (POSKERNEL_CACHE)."
            )
        if _is_one_of(error, *UNWRITABLE):
            return _read_only()
        return StoreFailed(f"The store cannot be read or written ({_why(error)}).")

    def _free(self) -> int:
        """Return the free bytes on the disk; a huge number if unknown."""
        try:
            return shutil.disk_usage(self.directory).free
        except OSError:
            return 2**60

    def _no_space(self, size: int) -> NoSpace:
        return NoSpace(
            "No space is left on the disk that holds the store (POSKERNEL_CACHE): "
            f"{_megabytes(max(size, MIN_FREE))} are needed, {_megabytes(self._free())} are free; "
            "make room and ask again."
        )


def _read_only() -> ReadOnlyStore:
    return ReadOnlyStore(
        "The store cannot be written: what is computed already is shown, nothing new can be; "
        "whoever runs this server can make its directory writable (POSKERNEL_CACHE)."
    )


def _number(directory: Path) -> int | None:
    """Return the inode of the database file, to notice a replaced file; None if there is none."""
    try:
        found = (directory / DATABASE).stat()
    except OSError:
        return None
    return found.st_ino if found.st_size else None


def _is_damage(error: BaseException) -> bool:
    """Return whether an error means that the database is damaged."""
    lost = str(error).startswith("no such") or "decode to UTF-8" in str(error)
    of_sqlite = isinstance(error, sqlite3.Error) and (lost or _is_one_of(error, *DAMAGED))
    return of_sqlite or isinstance(error, UnicodeDecodeError)


def _is_one_of(error: BaseException, numbers: set[int], codes: set[int]) -> bool:
    if isinstance(error, sqlite3.Error):
        return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF in codes
    return isinstance(error, OSError) and error.errno in numbers


def _why(error: BaseException | None) -> str:
    return str(getattr(error, "strerror", None) or error)[:200]


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.3g} MB" if size < 1e9 else f"{size / 1e9:.3g} GB"
