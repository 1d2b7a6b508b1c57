"""Statistics in the store, one entry a layer, so that a click on a head reads one layer only."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from poskernel_core.config import RunSpec
from poskernel_core.store import Store
from poskernel_core.views import Gathered

__all__ = ["LayerMissing", "StoredStatistics", "part_key", "write_statistics"]

BYTES_IN_MEMORY = 512 * 2**20


class StoredStatistics:
    """Statistics read from the store one layer at a time, the last few kept in memory."""

    def __init__(self, store: Store, run: RunSpec, header: dict[str, Any]) -> None:
        self.header = header
        self._store = store
        self._run = run

    @classmethod
    def open(cls, store: Store, run: RunSpec) -> StoredStatistics | None:
        """Return the statistics of a run, or None where any part is missing."""
        found = store.get(part_key(run, "manifest"))
        if found is None:
            return None
        parts = (part_key(run, str(layer)) for layer in range(found[0]["n_layers"]))
        return cls(store, run, found[0]) if all(map(store.has, parts)) else None

    def layer(self, layer: int) -> dict[str, np.ndarray]:
        """Return the arrays of one layer.

        Raises:
            LayerMissing: the entry vanished or is damaged; it is dropped, to be gathered again.
        """
        key = part_key(self._run, str(layer))
        arrays = _LAYERS.get((str(self._store.directory), key))
        if arrays is None:
            found = self._store.get(key)
            if found is None:
                self._store.drop(key)
                raise LayerMissing(key)
            arrays = found[1]
            _LAYERS.put((str(self._store.directory), key), arrays)
        return arrays


class LayerMissing(Exception):
    """A layer's statistics are no longer in the store, or damaged."""


class _Layers:
    """The layers read last, up to a number of bytes; shared by threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[tuple[str, str], dict[str, np.ndarray]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, str]) -> dict[str, np.ndarray] | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: tuple[str, str], arrays: dict[str, np.ndarray]) -> None:
        for array in arrays.values():
            array.setflags(write=False)
        with self._lock:
            self._kept[key] = arrays
            while len(self._kept) > 1 and self._bytes() > self._limit:
                self._kept.popitem(last=False)

    def _bytes(self) -> int:
        return sum(a.nbytes for arrays in self._kept.values() for a in arrays.values())


_LAYERS = _Layers(BYTES_IN_MEMORY)


def part_key(run: RunSpec, part: str) -> str:
    """Return the content address of one part of a run's statistics."""
    return run.key(kind="statistics", part=part)


def write_statistics(store: Store, run: RunSpec, gathered: Gathered) -> None:
    """Write all layers, then the manifest, so that a crash between leaves no half statistics."""
    for layer in range(gathered.header["n_layers"]):
        store.put(part_key(run, str(layer)), {"layer": layer}, gathered.layer(layer))
    store.put(part_key(run, "manifest"), gathered.header, {"layers": _layer_numbers(gathered)})


def _layer_numbers(gathered: Gathered) -> np.ndarray:
    return np.arange(gathered.header["n_layers"], dtype=np.int64)
