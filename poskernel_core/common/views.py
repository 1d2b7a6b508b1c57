"""Views of a finished pass for analyses, whether in memory or in the store."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np

from poskernel_core.common.differences import of_groups
from poskernel_core.common.header import PassHeader
from poskernel_core.common.specs import Gather, RunSpec


@runtime_checkable
class StatisticsView(Protocol):
    """The statistics of one finished pass."""

    @property
    def header(self) -> PassHeader:
        """The header of the pass."""
        ...

    def layer(self, layer: int) -> Mapping[str, np.ndarray]:
        """Return the arrays of one layer, without the layer axis."""
        ...


@dataclass(frozen=True)
class Gathered:
    """Statistics in memory: the arrays ``[layer, ...]`` of each statistic by name.

    ``run`` describes the pass if it is not stored, such as a pass over windows in memory.
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


@dataclass(frozen=True)
class Some:
    """The statistics of a pass restricted to the groups of texts ``kept``, with their queries."""

    view: StatisticsView
    kept: tuple[int, ...]

    @property
    def header(self) -> PassHeader:
        """The header of the pass, with the number of windows reduced."""
        return self.view.header.of_groups(len(self.kept))

    def layer(self, layer: int) -> Mapping[str, np.ndarray]:
        """Return the arrays of one layer, computed on access."""
        arrays = self.view.layer(layer)

        def mean(name: str) -> np.ndarray:
            if name == "queries":
                raise KeyError("the queries of some groups: ask queries_of")
            return of_groups(arrays, name, self.kept)

        return LazyArrays(lambda: (name for name in arrays if name != "queries"), mean)


def without(view: StatisticsView, group: int) -> Some:
    """Return the statistics without one group of texts."""
    return Some(view, tuple(number for number in range(view.header.groups) if number != group))


def halves(view: StatisticsView) -> tuple[Some, Some]:
    """Return the statistics of the groups of even and of odd number.

    A group keeps its half if others are left out.
    """
    base = view.view if isinstance(view, Some) else view
    kept = view.kept if isinstance(view, Some) else tuple(range(view.header.groups))
    even, odd = (tuple(group for group in kept if group % 2 == half) for half in (0, 1))
    return Some(base, even), Some(base, odd)


class LazyArrays(Mapping[str, np.ndarray]):
    """Arrays by name; each is made when it is first read."""

    def __init__(
        self, names: Callable[[], Iterable[str]], make: Callable[[str], np.ndarray]
    ) -> None:
        self._names, self._make = names, make
        self._made: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return sum(1 for _ in self)


def queries_of(view: StatisticsView, layer: int, place: int) -> np.ndarray:
    """Return the sampled queries ``[head, sample, d]`` of the ``place``-th recorded position.

    Sample ``s`` belongs to group ``s % groups``.
    """
    if isinstance(view, Some):
        queries = queries_of(view.view, layer, place)
        kept = np.isin(np.arange(queries.shape[1]) % view.view.header.groups, view.kept)
        return queries[:, kept]
    return view.layer(layer)["queries"][place]


def stacked(view: StatisticsView, name: str) -> np.ndarray:
    """Return one statistic of all layers as ``[layer, ...]``."""
    return np.stack([view.layer(layer)[name] for layer in range(view.header.n_layers)])
