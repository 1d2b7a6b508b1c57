"""Statistics in the store, one entry a layer, so that a click on a head reads one layer only."""

from __future__ import annotations

import threading
from contextlib import suppress

import numpy as np
from cachetools import LRUCache

from poskernel_core.common.header import PassHeader
from poskernel_core.common.specs import RunSpec
from poskernel_core.common.views import Gathered
from poskernel_core.storage.store import Store

__all__ = ["LayerMissing", "StoredStatistics", "part_key", "write_statistics"]

BYTES_IN_MEMORY = 512 * 2**20


class StoredStatistics:
    """Statistics read from the store one layer at a time, the last few kept in memory."""

    def __init__(self, store: Store, run: RunSpec, header: PassHeader) -> None:
        self.header = header
        self._store = store
        self._run = run

    @classmethod
    def open(cls, store: Store, run: RunSpec) -> StoredStatistics | None:
        """Return the statistics of a run, or None where any part is missing."""
        found = store.get(part_key(run, "manifest"))
        header = None if found is None else PassHeader.read(found[0])
        if header is None:
            return None
        parts = (part_key(run, str(layer)) for layer in range(header.n_layers))
        return cls(store, run, header) if all(map(store.has, parts)) else None

    def layer(self, layer: int) -> dict[str, np.ndarray]:
        """Return the arrays of one layer.

        Raises:
            LayerMissing: the entry vanished or is damaged; it is dropped, to be gathered again.
        """
        key = part_key(self._run, str(layer))
        place = str(self._store.directory), key
        with _READING:
            arrays = _LAYERS.get(place)
        if arrays is None:
            found = self._store.get(key)
            if found is None:
                self._store.drop(key)
                raise LayerMissing(key)
            arrays = found[1]
            for array in arrays.values():
                array.setflags(write=False)
            with _READING, suppress(ValueError):  # one layer is larger than all that is kept
                _LAYERS[place] = arrays
        return arrays


class LayerMissing(Exception):
    """A layer's statistics are no longer in the store, or damaged."""


def _size(arrays: dict[str, np.ndarray]) -> int:
    return sum(array.nbytes for array in arrays.values())


_LAYERS: LRUCache[tuple[str, str], dict[str, np.ndarray]] = LRUCache(BYTES_IN_MEMORY, _size)
"""The layers read last, by the store's directory and their key."""
_READING = threading.Lock()


def part_key(run: RunSpec, part: str) -> str:
    """Return the content address of one part of a run's statistics."""
    return run.key(kind="statistics", part=part)


def write_statistics(store: Store, run: RunSpec, gathered: Gathered) -> None:
    """Write all layers, then the manifest, so that a crash between leaves no half statistics."""
    for layer in range(gathered.header.n_layers):
        store.put(part_key(run, str(layer)), {"layer": layer}, gathered.layer(layer))
    layers = np.arange(gathered.header.n_layers, dtype=np.int64)
    store.put(part_key(run, "manifest"), gathered.header.as_json(), {"layers": layers})
