"""The content-addressed store: bytes under the hash of everything that determines them.

diskcache keeps the bytes, sizes and ages; it is never allowed to pickle (CVE-2025-69872: whoever
can write a cache directory could otherwise run code in whoever reads it). A value is one
safetensors blob (arrays; a JSON header and its key as metadata) after its SHA-256. An entry that is
damaged, tampered with, of another layout or of another key is a miss, and is dropped where it is
found.

What can be read is read: on a full disk, in a directory that cannot be written, beside a database
that is damaged. What cannot be written is one sentence, and is tried again the next time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any, TypeVar

import diskcache
import numpy as np
from filelock import FileLock, Timeout

from poskernel_core.common.errors import BadRequest, NoSpace, ReadOnlyStore, StoreFailed
from poskernel_core.common.files import is_file
from poskernel_core.common.folders import default_directory
from poskernel_core.common.settings import checked_gb, settings
from poskernel_core.common.specs import brief
from poskernel_core.storage.disk import (
    DATABASE,
    BytesOnly,
    peek,
    peek_files,
    peek_keys,
    peek_sizes,
)
from poskernel_core.storage.encoding import Entry, decode, encode, read_header
from poskernel_core.storage.rescue import check, is_damage, is_full, rebuild
from poskernel_core.storage.shipped import shipped

__all__ = ["Entry", "Store", "default_directory"]

T = TypeVar("T")

LEAST_FREE = 2**18
"""Bytes that the database needs besides what is written."""

UNWRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)


class Store:
    """Arrays with a JSON header, by key; shared safely by threads and processes.

    Args:
        directory: where the entries lie; made if missing.
        limit_gb: size above which the least recently used entries are dropped
            (default ``POSKERNEL_CACHE_GB``, else 8).

    Attributes:
        limit: the size in bytes above which entries are dropped.
        notice: what a reader should know of the store, in a sentence; None where all is well.

    Raises:
        BadRequest: a directory that cannot be used, or a limit that is no size.
    """

    def __init__(self, directory: str | Path | None = None, limit_gb: float | None = None) -> None:
        try:
            self.directory = Path(default_directory() if directory is None else directory)
        except TypeError as error:
            raise BadRequest(
                f"Expected a directory for the store, got {brief(directory)}."
            ) from error
        self.notice: str | None = None
        self.limit = int(
            (settings().cache_gb if limit_gb is None else checked_gb(limit_gb)) * 2**30
        )
        self._shipped = shipped()
        self._opening = threading.Lock()
        self._cache: diskcache.Cache | None = None
        self._number: int | None = None
        self._unreadable: set[str] = set()  # keys of damaged entries that could not be dropped
        a_file = is_file(self.directory)
        if a_file or (os.path.islink(self.directory) and not os.path.isdir(self.directory)):
            raise BadRequest(
                "Expected POSKERNEL_CACHE to be a directory for the store, found "
                f"{'a file' if a_file else 'a link that leads to none'} at "
                f"{str(self.directory)!r}: name another."
            )
        try:
            self._current()
        except StoreFailed as error:
            if _has_database(self.directory):
                return
            if isinstance(error, ReadOnlyStore):
                raise BadRequest(
                    f"The store at {str(self.directory)!r} cannot be used, as nothing can be "
                    "written there: give that directory to the user who runs this server, or set "
                    "POSKERNEL_CACHE to another."
                ) from error
            raise BadRequest(
                f"The store at {str(self.directory)!r} cannot be used: set POSKERNEL_CACHE to "
                f"a directory that can be written, or remove what is there. ({error})"
            ) from error

    def put(self, key: str, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Write an entry whole; a crash leaves the older entry or none.

        Raises:
            NoSpace, ReadOnlyStore, StoreFailed: it cannot be written, and nothing of it is.
        """
        self.put_bytes(key, encode(key, header, arrays))

    def get(self, key: str) -> Entry | None:
        """Return header and arrays; None where the entry is missing, damaged or tampered with.

        What is not in the store may come with the project (:mod:`poskernel_core.storage.shipped`).
        """
        found = self._read(key)
        if found is not None:
            return found[1]
        return self._shipped.get(key)

    def put_bytes(self, key: str, data: bytes) -> None:
        """Write checked bytes, as another store's :meth:`get_bytes` returned them.

        Raises:
            NoSpace, ReadOnlyStore, StoreFailed: they cannot be written.
        """
        self._do(lambda cache: _set(cache, key, data), len(data))

    def get_bytes(self, key: str) -> bytes | None:
        """Return an entry's bytes; None where it is missing, damaged or tampered with."""
        found = self._read(key)
        return None if found is None else found[0]

    def _read(self, key: str) -> tuple[bytes, Entry] | None:
        """Return an entry as bytes and decoded; one that cannot be read is dropped."""
        try:
            data = self._do(lambda cache: cache.get(key))
        except StoreFailed:
            data = self._peek(key)
        entry = None if data is None else decode(data, key)
        if data is not None and entry is not None:
            self._unreadable.discard(key)
            return data, entry
        if data is not None:
            self._drop_unreadable(key)
        return None

    def _drop_unreadable(self, key: str) -> None:
        def drop(cache: diskcache.Cache) -> None:
            with cache.transact():
                data = cache.get(key)  # another process may have written it anew
                if data is not None and decode(data, key) is None:
                    cache.delete(key)

        try:
            self._do(drop)
        except StoreFailed:
            self._unreadable.add(key)

    def has(self, key: str) -> bool:
        """Tell whether there is an entry, without reading it.

        Damage shows when it is read: from then on it is missing.
        """
        if self._shipped.has(key):
            return True
        if key in self._unreadable:
            return self._read(key) is not None
        try:
            return self._do(lambda cache: key in cache)
        except StoreFailed:
            return self._read(key) is not None

    def drop(self, key: str) -> None:
        """Remove an entry if it is there and can be removed."""
        with contextlib.suppress(StoreFailed):
            self._do(lambda cache: cache.delete(key))

    def keys(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys that begin with ``prefix``.

        Raises:
            StoreFailed: the store cannot be read.
        """
        with contextlib.suppress(StoreFailed):
            self._current()
        try:
            keys = peek_keys(self.directory)
        except sqlite3.Error as error:
            raise self._failure(error, 0) from error
        yield from (key for key in keys if key.startswith(prefix))

    def newest(self, prefix: str) -> list[tuple[str, int]]:
        """Return the keys that begin with ``prefix``, the latest first, and the bytes of each."""
        try:
            self._current()
            return peek_sizes(self.directory, prefix)
        except (StoreFailed, sqlite3.Error):
            return []

    def headers(self, known: Container[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield every key but those known with the header of its entry, then what is shipped.

        The arrays are not read, and so nothing is checked; :meth:`get` checks.
        """
        with contextlib.suppress(StoreFailed):
            self._current()
        with contextlib.suppress(OSError, sqlite3.Error):
            for key, file in peek_files(self.directory):
                if key in known:
                    continue
                with contextlib.suppress(OSError), file.open("rb") as stream:
                    header = read_header(stream.read)
                    if header is not None:
                        yield key, header
        yield from self._shipped.headers(known)

    def size(self) -> int:
        """Return the size of the store in bytes."""
        return self._do(lambda cache: int(cache.volume()))

    def entries(self) -> int:
        """Return how many entries the store holds, without what comes with the project."""
        return self._do(lambda cache: len(cache))

    def make_room(self, size: int) -> None:
        """Check that ``size`` bytes can be written, before work is done for them.

        Raises:
            NoSpace, ReadOnlyStore, StoreFailed: they cannot.
        """
        self._current()
        if not os.access(self.directory, os.W_OK):
            raise _read_only()
        if self._free() < size + LEAST_FREE:
            raise self._no_space(size)

    @contextlib.contextmanager
    def lock(self, name: str, waiting: Callable[[], None]) -> Iterator[None]:
        """Hold a lock that other processes see; call ``waiting`` twice a second until then.

        Raises:
            NoSpace, ReadOnlyStore, StoreFailed: there can be no lock.
        """
        place = self.directory / "locks"
        try:
            lock = FileLock(place / f"{name}.lock")
            while True:
                place.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(Timeout, FileNotFoundError):  # or removed a moment ago
                    lock.acquire(timeout=0.5)
                    break
                waiting()
        except OSError as error:
            if isinstance(error, FileExistsError) and place.is_file():
                raise StoreFailed(
                    "The store needs a directory called 'locks', and there is a file of that name: "
                    "remove it."
                ) from error
            raise self._failure(error, 0) from error
        try:
            yield
        finally:
            lock.release()

    def close(self) -> None:
        """Close the database connections of this thread."""
        if self._cache is not None:
            self._cache.close()

    def _do(self, act: Callable[[diskcache.Cache], T], size: int = 0) -> T:
        """Act on the database; where it turns out to be damaged, on the one made in its place."""
        try:
            return act(self._current())
        except (OSError, sqlite3.Error, UnicodeDecodeError, diskcache.Timeout) as error:
            if not is_damage(error):
                raise self._failure(error, size) from error
        try:
            return act(self._repaired())
        except (OSError, sqlite3.Error, UnicodeDecodeError, diskcache.Timeout) as error:
            raise self._failure(error, size) from error

    def _current(self) -> diskcache.Cache:
        """Return the database that lies in the directory now, opened.

        Raises:
            StoreFailed: it cannot be opened for writing.
        """
        with self._opening:
            if self._cache is None or _number(self.directory) != self._number:
                try:
                    self._open()
                except (OSError, sqlite3.Error, diskcache.Timeout) as error:
                    self._cache = None
                    raise self._failure(error, 0) from error
            assert self._cache is not None
            return self._cache

    def _open(self) -> None:
        was = self._number
        try:
            self._cache = self._make()
            if was is None:
                check(self._cache)
        except Exception as error:
            known = isinstance(error, OSError | sqlite3.Error | diskcache.Timeout)
            if known and not is_damage(error):
                raise
            self._cache, self.notice = rebuild(self.directory, None, self._make)
        self._number = _number(self.directory)

    def _repaired(self) -> diskcache.Cache:
        with self._opening:
            if self._cache is not None:
                self._cache.close()
            found = self._number
            self._cache = None
            self._cache, notice = rebuild(self.directory, found, self._make)
            self.notice = notice or self.notice
            self._number = _number(self.directory)
            return self._cache

    def _make(self) -> diskcache.Cache:
        return diskcache.Cache(
            str(self.directory),
            disk=BytesOnly,
            size_limit=self.limit,
            eviction_policy="least-recently-used",
            sqlite_journal_mode="wal",
        )

    def _peek(self, key: str) -> bytes | None:
        try:
            return peek(self.directory, key)
        except (OSError, sqlite3.Error):
            return None

    def _failure(self, error: BaseException, size: int) -> StoreFailed:
        if is_full(error) or self._free() < LEAST_FREE:
            return self._no_space(size)
        if isinstance(error, diskcache.Timeout):
            return StoreFailed("The store is busy with another process: ask again in a moment.")
        if not os.path.isdir(self.directory):
            return StoreFailed(
                "The store's directory was removed, or something else has its name: whoever runs "
                "this server can put it back (POSKERNEL_CACHE)."
            )
        if _cannot_write(error):
            return _read_only()
        why = error.strerror if isinstance(error, OSError) else str(error)
        return StoreFailed(f"The store cannot be read or written ({str(why)[:200]}).")

    def _free(self) -> int:
        """Return the bytes that are free on the disk; many, where that is unknown."""
        try:
            return shutil.disk_usage(self.directory).free
        except OSError:
            return 2**60

    def _no_space(self, size: int) -> NoSpace:
        return NoSpace(
            "No space is left on the disk that holds the store (POSKERNEL_CACHE): "
            f"{_megabytes(max(size, LEAST_FREE))} are needed, {_megabytes(self._free())} are free; "
            "make room and ask again."
        )


def _read_only() -> ReadOnlyStore:
    return ReadOnlyStore(
        "The store cannot be written: what is computed already is shown, nothing new can be; "
        "whoever runs this server can make its directory writable (POSKERNEL_CACHE)."
    )


def _set(cache: diskcache.Cache, key: str, data: bytes) -> None:
    try:
        cache.set(key, data)
    except BaseException:
        cache.disk.take_back()
        raise


def _number(directory: Path) -> int | None:
    """Return what distinguishes one database file from another of the same name."""
    try:
        return (directory / DATABASE).stat().st_ino
    except OSError:
        return None


def _has_database(directory: Path) -> bool:
    try:
        return (directory / DATABASE).stat().st_size > 0
    except OSError:
        return False


def _cannot_write(error: BaseException) -> bool:
    if isinstance(error, sqlite3.Error):
        return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF in UNWRITABLE
    return isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.3g} MB" if size < 1e9 else f"{size / 1e9:.3g} GB"
