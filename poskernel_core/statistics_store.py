"""Statistics in the store, one entry a layer, so that a click on a head reads one layer only."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from poskernel_core.config import RunSpec
from poskernel_core.store import Store
from poskernel_core.views import Gathered

__all__ = ["StoredStatistics", "part_key", "write_statistics"]

LAYERS_IN_MEMORY = 48


class StoredStatistics:
    """Statistics read from the store one layer at a time, the last few kept in memory."""

    def __init__(self, store: Store, run: RunSpec, header: dict[str, Any]) -> None:
        self.header = header
        self._store = store
        self._run = run

    @classmethod
    def open(cls, store: Store, run: RunSpec) -> StoredStatistics | None:
        """Return the statistics of a run, or None where any part is missing or damaged."""
        found = store.get(part_key(run, "manifest"))
        if found is None:
            return None
        view = cls(store, run, found[0])
        layers = range(found[0]["n_layers"])
        return view if all(view._try_layer(i) is not None for i in layers) else None

    def layer(self, layer: int) -> dict[str, np.ndarray]:
        """Return the arrays of one layer.

        Raises:
            KeyError: the entry vanished since the statistics were opened.
        """
        arrays = self._try_layer(layer)
        if arrays is None:
            raise KeyError(part_key(self._run, str(layer)))
        return arrays

    def _try_layer(self, layer: int) -> dict[str, np.ndarray] | None:
        try:
            return _read_layer(self._store, part_key(self._run, str(layer)))
        except KeyError:
            return None


@lru_cache(maxsize=LAYERS_IN_MEMORY)
def _read_layer(store: Store, key: str) -> dict[str, np.ndarray]:
    found = store.get(key)
    if found is None:
        raise KeyError(key)
    for array in found[1].values():
        array.setflags(write=False)
    return found[1]


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
