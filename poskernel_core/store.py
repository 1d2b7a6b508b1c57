"""The content-addressed store: bytes under the hash of everything that determines them.

diskcache keeps the bytes, sizes and ages; it is never allowed to pickle (CVE-2025-69872: whoever
can write a cache directory could otherwise run code in whoever reads it). A value is one
safetensors blob (arrays, and a JSON header as its metadata) behind its SHA-256. An entry that is
damaged, tampered with or of another layout is a miss.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import diskcache
import numpy as np
from diskcache.core import MODE_BINARY, MODE_RAW
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from poskernel_core.errors import BadRequest
from poskernel_core.shipped import shipped

__all__ = ["Entry", "Store", "default_directory"]

Entry = tuple[dict[str, Any], dict[str, np.ndarray]]

DIGEST = hashlib.sha256().digest_size
DEFAULT_LIMIT_GB = 8.0


def default_directory() -> Path:
    """Return ``POSKERNEL_CACHE``, or ``cache/`` beside the package."""
    named = os.environ.get("POSKERNEL_CACHE")
    return Path(named) if named else Path(__file__).resolve().parent.parent / "cache"


def _limit() -> float:
    text = os.environ.get("POSKERNEL_CACHE_GB", str(DEFAULT_LIMIT_GB))
    try:
        limit = float(text)
    except ValueError:
        limit = 0.0
    if not 0 < limit < float("inf"):
        raise BadRequest(f"Expected POSKERNEL_CACHE_GB to be a size in GB above 0, got {text!r}.")
    return limit


class _BytesOnly(diskcache.Disk):
    """A disk that stores bytes under text keys, and refuses to read anything else."""

    def put(self, key: str) -> tuple[str, bool]:
        if not isinstance(key, str):
            raise TypeError(f"a key is text, not {type(key).__name__}")
        return key, True

    def get(self, key: Any, raw: int) -> str:
        if not raw or not isinstance(key, str):
            raise ValueError("the store holds a key that is not text")
        return key

    def store(self, value: bytes, read: bool, key: Any = None) -> tuple[Any, ...]:
        if not isinstance(value, bytes):
            raise TypeError(f"a value is bytes, not {type(value).__name__}")
        return super().store(value, read=False)

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> bytes:
        if mode == MODE_RAW and isinstance(value, bytes):
            return value
        if mode == MODE_BINARY and filename:
            path = (Path(self._directory) / filename).resolve()
            if path.is_relative_to(Path(self._directory).resolve()):
                return path.read_bytes()
        raise ValueError("the store holds an entry that is not plain bytes")

    def remove(self, file_path: str) -> None:
        path = (Path(self._directory) / file_path).resolve()
        if path.is_relative_to(Path(self._directory).resolve()):
            super().remove(file_path)


class Store:
    """Arrays with a JSON header, by key; shared safely by threads and processes.

    Args:
        directory: where the entries lie; made if missing.
        limit_gb: size above which the least recently used entries are dropped
            (default ``POSKERNEL_CACHE_GB``, else 8).
    """

    def __init__(self, directory: Path | None = None, limit_gb: float | None = None) -> None:
        self.directory = Path(directory or default_directory())
        self._shipped = shipped()
        limit = _limit() if limit_gb is None else limit_gb
        try:
            self._cache = diskcache.Cache(
                str(self.directory),
                disk=_BytesOnly,
                size_limit=int(limit * 2**30),
                eviction_policy="least-recently-used",
                sqlite_journal_mode="wal",
            )
        except (OSError, sqlite3.DatabaseError) as error:
            raise BadRequest(
                f"The store at {str(self.directory)!r} cannot be used ({error}): set "
                "POSKERNEL_CACHE to a directory that can be written, or remove what is there."
            ) from error

    def put(self, key: str, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Write an entry whole; a crash leaves the older entry or none."""
        self.put_bytes(key, encode(header, arrays))

    def get(self, key: str) -> Entry | None:
        """Return header and arrays; None where the entry is missing, damaged or tampered with.

        What is not in the store may come with the project (:mod:`poskernel_core.shipped`).
        """
        data = self.get_bytes(key)
        found = None if data is None else decode(data)
        return self._shipped.get(key) if found is None and self._shipped else found

    def put_bytes(self, key: str, data: bytes) -> None:
        """Write checked bytes, as another store's :meth:`get_bytes` returned them."""
        self._cache.set(key, data)

    def get_bytes(self, key: str) -> bytes | None:
        """Return an entry's bytes if its checksum holds, else None."""
        try:
            data = self._cache.get(key)
        except (ValueError, TypeError, OSError, sqlite3.DatabaseError):
            return None
        if not isinstance(data, bytes) or not intact(data):
            return None
        return data

    def has(self, key: str) -> bool:
        """Tell whether there is an entry, without reading it."""
        if self._shipped and self._shipped.has(key):
            return True
        try:
            return key in self._cache
        except sqlite3.DatabaseError:
            return False

    def drop(self, key: str) -> None:
        """Remove an entry if it is there."""
        self._cache.delete(key)

    def keys(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys that begin with ``prefix``."""
        with contextlib.closing(sqlite3.connect(self.directory / "cache.db")) as database:
            rows = database.execute(
                "SELECT key FROM Cache WHERE raw = 1 AND typeof(key) = 'text' ORDER BY key"
            ).fetchall()
        yield from (key for (key,) in rows if key.startswith(prefix))

    def size(self) -> int:
        """Return the size of the store in bytes."""
        return int(self._cache.volume())

    def close(self) -> None:
        """Close the database connections of this thread."""
        self._cache.close()


def encode(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """Return SHA-256 followed by the safetensors blob of arrays and header."""
    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    blob = save_tensors(plain, metadata={"header": json.dumps(header)})
    return hashlib.sha256(blob).digest() + blob


def intact(data: bytes) -> bool:
    """Tell whether the bytes match the checksum in front of them."""
    return len(data) > DIGEST and hashlib.sha256(data[DIGEST:]).digest() == data[:DIGEST]


def decode(data: bytes) -> Entry | None:
    """Return header and arrays of encoded bytes; None where they do not parse."""
    blob = data[DIGEST:]
    try:
        length = int.from_bytes(blob[:8], "little")
        header = json.loads(json.loads(blob[8 : 8 + length])["__metadata__"]["header"])
        return header, load_tensors(blob)
    except (ValueError, KeyError, TypeError, SafetensorError):
        return None
