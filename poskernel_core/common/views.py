"""What analyses see of a finished pass, whether it lies in memory or in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np

from poskernel_core.common.header import PassHeader
from poskernel_core.common.specs import Gather, RunSpec

__all__ = ["Gathered", "StatisticsView", "stacked"]


@runtime_checkable
class StatisticsView(Protocol):
    """The statistics of one finished pass."""

    @property
    def header(self) -> PassHeader:
        """What the pass knew of itself."""
        ...

    def layer(self, layer: int) -> Mapping[str, np.ndarray]:
        """Return the arrays of one layer, without the layer axis."""
        ...


@dataclass(frozen=True)
class Gathered:
    """Statistics in memory: the arrays ``[layer, ...]`` of each statistic by name.

    ``run`` describes the pass where nothing else does, as one over windows in memory.
    """

    header: PassHeader
    parts: Mapping[Gather, Mapping[str, np.ndarray]] = field(repr=False)
    run: RunSpec | None = None

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of all statistics."""
        return {name: array for part in self.parts.values() for name, array in part.items()}

    def layer(self, layer: int) -> dict[str, np.ndarray]:
        """Return the arrays of one layer, without the layer axis."""
        return {name: array[layer] for name, array in self.arrays.items() if layer < len(array)}


def stacked(view: StatisticsView, name: str, layers: Sequence[int] | None = None) -> np.ndarray:
    """Return one statistic of several layers (default all) as ``[layer, ...]``."""
    chosen = range(view.header.n_layers) if layers is None else layers
    return np.stack([view.layer(layer)[name] for layer in chosen])
