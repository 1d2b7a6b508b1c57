"""The content-addressed store: each entry's key is a hash of everything that determines it.

diskcache keeps the entries: its transactions, its limit of size, its eviction of the least recently
used. Ours is its disk (:mod:`poskernel_core.storage.disk`), which stores bytes and never a pickle.
A value is a SHA-256 followed by one safetensors blob (arrays, with a JSON header and the key as
metadata). **Unreadable counts as missing**: an entry that is damaged, tampered with, of another
layout or of another key is dropped when it is read. If it cannot be dropped, ``has`` returns False
for it. A damaged database is set aside, with what it lists, and a new one is begun.

Reading works as far as possible: on a full disk, in a read-only directory. A failed write raises an
error with a one-sentence message and is attempted again the next time.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Container, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import diskcache
import numpy as np
from cachetools import LRUCache, cachedmethod
from diskcache.core import MODE_BINARY
from filelock import FileLock, Timeout

from poskernel_core.common.errors import BadRequest, StoreFailed
from poskernel_core.common.folders import default_directory
from poskernel_core.common.settings import checked_gb, settings
from poskernel_core.common.specs import brief
from poskernel_core.storage.disk import (
    ASIDE,
    DATABASE,
    FAILURES,
    BytesOnly,
    failure,
    is_damage,
    no_room,
    select,
    set_aside,
    why,
)
from poskernel_core.storage.encoding import Entry, decode, encode, read_header
from poskernel_core.storage.shipped import shipped

T = TypeVar("T")
BYTES_IN_MEMORY = 512 * 2**20
"""Largest size of the layers in memory; it is also limited by the store's size."""

NOTICE = (
    "The store's list of results was damaged. It was set aside with its files, in the folder "
    f"{ASIDE!r} of the store, which can be deleted; results are computed again on request."
)


class LayerMissing(Exception):
    """A layer's statistics are damaged or no longer in the store."""


class Store:
    """Arrays with a JSON header, by key; safe for threads and processes.

    Args:
        directory: where the entries are stored; created if missing.
        limit_gb: size above which the least recently used entries are evicted
            (default ``POSKERNEL_CACHE_GB``, else 8).

    Attributes:
        limit: the size limit in bytes.
        notice: a sentence about a damaged store, for display; None if all is well.

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
        self._layers: LRUCache[str, dict[str, np.ndarray]] = LRUCache(
            min(BYTES_IN_MEMORY, self.limit), lambda arrays: sum(a.nbytes for a in arrays.values())
        )
        self._reading = threading.Condition()
        self._shipped = shipped()
        self._opening = threading.Lock()
        self._cache: diskcache.Cache | None = None
        self._inode: int | None = None  # of the open database
        self._damaged: int | None = None  # of the one that was found to be damaged
        self._unreadable: set[str] = set()  # keys of damaged entries that could not be dropped
        try:
            self._current()
        except StoreFailed as error:
            if self._inode_there() is None:
                raise BadRequest(
                    f"The store at {str(self.directory)!r} cannot be used ({why(error.__cause__)})"
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
        stored = self._read(key)
        return self._shipped.get(key) if stored is None else stored[1]

    @cachedmethod(attrgetter("_layers"), lambda _, key: key, condition=attrgetter("_reading"))
    def layer(self, key: str) -> dict[str, np.ndarray]:
        """Return the arrays of a layer, for reading; those that were read lately stay in memory.

        Who needs the same layer at the same time waits for it.

        Raises:
            LayerMissing: the entry is gone or damaged.
        """
        entry = self.get(key)
        if entry is None:
            raise LayerMissing(key)
        for array in entry[1].values():
            array.setflags(write=False)
        return entry[1]

    def put_bytes(self, key: str, data: bytes) -> None:
        """Write bytes that another store's :meth:`get_bytes` returned (already checked).

        Raises:
            NoSpace, ReadOnlyStore, StoreFailed: they cannot be written.
        """
        self.make_room(len(data))
        self._do(lambda cache: cache.set(key, data))

    def get_bytes(self, key: str) -> bytes | None:
        """Return an entry's bytes; None if it is missing, damaged or tampered with."""
        stored = self._read(key)
        return None if stored is None else stored[0]

    def _read(self, key: str) -> tuple[bytes, Entry] | None:
        try:
            data = self._do(lambda cache: cache.get(key))
        except StoreFailed:  # nothing can be written, not even the time of access
            data = b""
            with contextlib.suppress(StoreFailed):
                rows, disk = self._rows(key, key), BytesOnly(str(self.directory))
                data = disk.fetch(MODE_BINARY, rows[0][2], None, read=False) if rows else None
        if data is None:
            return None
        if (entry := decode(data, key)) is not None:
            self._unreadable.discard(key)
            return data, entry

        def drop(cache: diskcache.Cache) -> None:
            with cache.transact():
                again = cache.get(key)  # another process may have replaced it
                if again is not None and decode(again, key) is None:
                    cache.delete(key)

        try:
            self._do(drop)
        except StoreFailed:
            self._unreadable.add(key)
        return None

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
                return bool(self._rows(key, key))
            return False

    def drop(self, key: str) -> None:
        """Remove an entry if it exists and can be removed."""
        with contextlib.suppress(StoreFailed):
            self._do(lambda cache: cache.delete(key))

    def keys(self, prefix: str = "") -> dict[str, int]:
        """Return the keys with this prefix, newest first, and the sizes of their values in bytes.

        Raises:
            StoreFailed: the store cannot be read.
        """
        return {key: size for key, size, _ in self._rows(prefix, prefix + "\U0010ffff")}

    def headers(self, known: Container[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield key and header of every entry whose key is not in ``known``, then shipped entries.

        Arrays are not read and checksums not verified; :meth:`get` does both.
        """
        with contextlib.suppress(StoreFailed):
            for key, _, name in self._rows("", "\U0010ffff"):
                if key in known:
                    continue
                with contextlib.suppress(OSError), (self.directory / name).open("rb") as stream:
                    if (header := read_header(stream.read)) is not None:
                        yield key, header
        yield from self._shipped.headers(known)

    def make_room(self, size: int) -> None:
        """Check that ``size`` bytes can be written, before computing them.

        Raises:
            NoSpace, ReadOnlyStore, StoreFailed: the bytes cannot be written.
        """
        self._current()
        if room_error := no_room(self.directory, size):
            raise room_error

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
            raise failure(error, self.directory) from error
        try:
            yield
        finally:
            lock.release()

    def close(self) -> None:
        """Close the database connections of this thread."""
        if self._cache is not None:
            self._cache.close()

    def _do(self, act: Callable[[diskcache.Cache], T]) -> T:
        """Run an operation on the database; if it is damaged, begin a new one and retry once."""
        cache = self._current()
        try:
            return act(cache)
        except FAILURES as error:
            if not is_damage(error):
                raise failure(error, self.directory) from error
        with self._opening:
            if self._cache is cache:
                self.close()
                self._cache, self._damaged = None, self._inode
        try:
            return act(self._current())
        except FAILURES as error:
            raise failure(error, self.directory) from error

    def _rows(self, first: str, last: str) -> list[tuple[str, int, str]]:
        """Return key, size and file of the entries from one key to another, newest first.

        Works also if nothing can be written.
        """
        query = (
            "SELECT key, size, filename FROM Cache WHERE raw = 1 AND filename IS NOT NULL "
            "AND key BETWEEN ? AND ? ORDER BY store_time DESC, rowid DESC"
        )
        try:
            return self._do(lambda _: select(self.directory, query, first, last))
        except StoreFailed as error:
            try:
                return select(self.directory, query, first, last)
            except FAILURES:
                raise error from error.__cause__

    def _inode_there(self) -> int | None:
        """Return the inode of the database, to notice a replaced one; None if there is none."""
        try:
            status = (self.directory / DATABASE).stat()
        except OSError:
            return None
        return status.st_ino if status.st_size else None

    def _current(self) -> diskcache.Cache:
        """Return the open database, reopening it if the file in the directory was replaced."""
        with self._opening:
            if self._cache is None or self._inode_there() != self._inode:
                try:
                    self._cache = self._open()
                except FAILURES as error:
                    self._cache = None
                    raise failure(error, self.directory) from error
                self._inode, self._damaged = self._inode_there(), None
            assert self._cache is not None
            return self._cache

    def _open(self) -> diskcache.Cache:
        """Open the database; what is left of a missing or damaged one is set aside before."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with FileLock(self.directory / "rescue.lock"):  # one process does it, the others wait
            if self._inode_there() not in (None, self._damaged):
                try:
                    return self._make()
                except Exception as error:
                    if isinstance(error, FAILURES) and not is_damage(error):
                        raise
            if set_aside(self.directory):
                self.notice = NOTICE
                print(NOTICE, file=sys.stderr)
            return self._make()

    def _make(self) -> diskcache.Cache:
        return diskcache.Cache(
            str(self.directory),
            disk=BytesOnly,
            size_limit=self.limit,
            eviction_policy="least-recently-used",
            sqlite_journal_mode="wal",
        )
