"""A pass that has read some of its windows: its statistics so far, as those of a shorter run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from threading import Lock

import numpy as np

from poskernel_core.common.header import PassHeader
from poskernel_core.common.specs import OF_PATTERNS, Gather, RunSpec
from poskernel_core.common.views import LazyArrays
from poskernel_core.models.geometry import bytes_kept
from poskernel_core.passes.streaming import Pass, finish
from poskernel_core.statistics import STATISTICS, Sizes, Sums
from poskernel_core.storage.statistics import write_statistic
from poskernel_core.storage.store import Store


@dataclass(frozen=True)
class Stage:
    """The first windows of a run, equally many of every group.

    Attributes:
        run: the run of these windows alone: the first windows of a run are those of a shorter one.
        of: how many windows the whole run has.
        sizes, header: sizes and header of a pass over these windows.
        groups: the sums of each group.
    """

    run: RunSpec
    of: int
    sizes: Sizes
    header: PassHeader
    groups: Sequence[Pass]

    @property
    def windows(self) -> int:
        """How many windows were read."""
        return self.run.windows

    def at(self, query: int) -> FormingStatistics:
        """Return the statistics at one recorded position; they change when the pass goes on."""
        return FormingStatistics(self, (query,))

    def covers(self, run: RunSpec) -> bool:
        """Return whether the statistics of a run, which may be longer, form here."""
        same = {"windows": self.run.windows, "until": None, "gather": self.run.gather}
        if OF_PATTERNS.isdisjoint(run.gather):
            same["pattern_windows"] = self.run.pattern_windows
        fits = set(run.gather) <= set(self.run.gather) and self.windows <= run.windows
        return fits and self.run == run.model_copy(update=same)

    def write(self, store: Store, run: RunSpec) -> None:
        """Write the statistics to the store, under a run that ends here."""
        store.make_room(bytes_kept(self.groups[0].numbers(), len(self.groups)))
        view = FormingStatistics(self, self.sizes.positions)
        for name in self.run.gather:
            layers = (view.part(name, layer) for layer in range(self.header.n_layers))
            write_statistic(store, run, name, self.header, layers)


class FormingStatistics:
    """The statistics of a stage at some recorded positions, made from the sums on access."""

    def __init__(self, stage: Stage, positions: tuple[int, ...]) -> None:
        self.header = stage.header.model_copy(update={"positions": positions})
        self._plan = replace(stage.sizes, positions=positions)
        self._places = [stage.sizes.positions.index(position) for position in positions]
        self._names = stage.run.gather
        self._groups = stage.groups
        self._layers: dict[int, LazyArrays] = {}

    def layer(self, layer: int) -> LazyArrays:
        """Return the arrays of one layer; a statistic is made when one of its arrays is read."""
        if layer not in self._layers:
            self._layers[layer] = self._made(cache(partial(self.part, layer=layer)))
        return self._layers[layer]

    def _made(self, make: Callable[[Gather], dict[str, np.ndarray]]) -> LazyArrays:
        one = Lock()

        def part(statistic: Gather) -> dict[str, np.ndarray]:
            with one:  # threads need the same layer at the same time
                return make(statistic)

        def find(name: str) -> np.ndarray:
            mean = name.partition(".")[0]
            own = [kind for kind in self._names if mean in STATISTICS[kind].means.values()]
            for statistic in own or self._names:  # some name their arrays only when they are made
                if name in (arrays := part(statistic)):
                    return arrays[name]
            raise KeyError(name)

        return LazyArrays(lambda: (name for kind in self._names for name in part(kind)), find)

    def part(self, statistic: Gather, layer: int) -> dict[str, np.ndarray]:
        """Return the arrays of one statistic and layer; empty if it does not cover the layer."""
        blocks = [self._sums(work, statistic, layer) for work in self._groups]
        if not blocks[0]:
            return {}
        arrays = finish(statistic, blocks, self._plan)
        return {name: np.asarray(array[0]) for name, array in arrays.items()}

    def _sums(self, work: Pass, statistic: Gather, layer: int) -> Sums:
        axes = STATISTICS[statistic].query_axes
        sums = {}
        for name, total in work.totals(statistic).items():
            if layer < len(total):
                of_layer = total[layer : layer + 1]
                if name in axes and len(self._places) < of_layer.shape[axes[name]]:
                    of_layer = of_layer[(slice(None),) * axes[name] + (self._places,)]
                sums[name] = of_layer.cpu().numpy()
        return sums
