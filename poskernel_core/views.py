"""What analyses see of a finished pass, whether it lies in memory or in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

__all__ = ["Gathered", "StatisticsView", "stacked"]


@runtime_checkable
class StatisticsView(Protocol):
    """The statistics of one finished pass.

    ``header`` holds what the pass knew: ``context``, ``positions``, ``windows``, ``samples``,
    ``start_token``, ``scales`` and ``sliding_windows`` per layer, sizes, and the provenance.
    """

    @property
    def header(self) -> dict[str, Any]:
        """What the pass knew of itself."""
        ...

    def layer(self, layer: int) -> dict[str, np.ndarray]:
        """Return the arrays of one layer, without the layer axis."""
        ...


@dataclass(frozen=True)
class Gathered:
    """Statistics in memory: ``arrays [layer, ...]`` by name."""

    header: dict[str, Any]
    arrays: dict[str, np.ndarray] = field(repr=False)

    def layer(self, layer: int) -> dict[str, np.ndarray]:
        """Return the arrays of one layer, without the layer axis."""
        return {name: array[layer] for name, array in self.arrays.items() if layer < len(array)}


def stacked(view: StatisticsView, name: str, layers: Sequence[int] | None = None) -> np.ndarray:
    """Return one statistic of several layers (default all) as ``[layer, ...]``."""
    chosen = range(view.header["n_layers"]) if layers is None else layers
    return np.stack([view.layer(layer)[name] for layer in chosen])
