"""Base class of statistics: sizes, sums that can be added, and means made from them.

A statistic accumulates *sums* over the windows of one group of texts: a block. Blocks of disjoint
windows are merged by addition, and the result does not depend on the order. So a pass can be split
into shards, run anywhere, stopped and resumed. The blocks of all groups give the means, and each
group's differences from the means. The first axis of every array is the layer, so that the store
can save and load single layers. If an array has fewer layers than the model, they are the model's
first layers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from poskernel_core.common.attention import repeat_kv
from poskernel_core.common.differences import average
from poskernel_core.common.groups import Dealt, first_of_all, groups_of
from poskernel_core.forward.attention import PatternBlock
from poskernel_core.forward.observers import Observer
from poskernel_core.models.geometry import SUMS, Geometry

Sums = dict[str, np.ndarray]

STATISTICS: dict[str, type[Statistic]] = {}
"""Every statistic class by name; classes register themselves when they are defined."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of one pass.

    Attributes:
        geometry: sizes of the model.
        context: ``T``, tokens per window, the start token included.
        windows: number of windows in all shards together.
        positions: recorded query positions, ascending, all below ``context``.
        samples: requested queries per position, taken from the first windows.
        start_token: whether position 0 is the start token.
        pattern_windows: how many of the first windows form attention patterns; None: all.
        dealt: what the groups consist of.
        texts: text of each token id, if a statistic needs them; empty for special tokens.
    """

    geometry: Geometry
    context: int
    windows: int
    positions: tuple[int, ...]
    samples: int
    start_token: bool
    pattern_windows: int | None = None
    dealt: Dealt = "windows"
    texts: tuple[str, ...] = ()

    @property
    def groups(self) -> int:
        """Number of groups; window ``w``, in the order of reading, is in group ``w % groups``."""
        return groups_of(self.windows)

    @property
    def seen(self) -> int:
        """How many windows form attention patterns."""
        return first_of_all(self.pattern_windows or self.windows, self.windows)

    @property
    def sampled(self) -> int:
        """Number of windows whose queries are sampled."""
        return first_of_all(self.samples, self.windows)


class Statistic(Observer):
    """Sums over the windows of a group, as an observer; subclasses define and fill the sums.

    ``batch.samples`` are the numbers of the batch's windows. Sums are on the device of the pass, or
    on the CPU if the device has no float64 (``mps``).

    Attributes:
        name: name of the statistic in the options of a run.
        means: name of each sum -> name of its mean.
        alone: means stored without the groups' differences.
        query_axes: for each sum with an axis of recorded positions, which axis it is.
        grain: added values are rounded to multiples of the grain. So sums are exact and do not
            depend on the order of additions, as long as they stay below ``2**53`` grains.
        wants_texts: whether the statistic reads ``sizes.texts``.
        wide: whether sums are float64; else float32.
    """

    name: ClassVar[str]
    means: ClassVar[Mapping[str, str]]
    alone: ClassVar[frozenset[str]] = frozenset()
    query_axes: ClassVar[Mapping[str, int]] = {}
    grain: ClassVar[float] = 2.0**-28
    wants_texts: ClassVar[bool] = False
    wide: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in vars(cls):
            STATISTICS[cls.name] = cls

    def __init__(self, sizes: Sizes, device: torch.device) -> None:
        self.sizes = sizes
        self.device = torch.device("cpu") if device.type == "mps" else device
        self.sums: dict[str, Tensor] = self.allocate()

    def allocate(self) -> dict[str, Tensor]:
        """Return the sums as zeros; the first axis of each is the layer.

        Their axes are declared in :data:`poskernel_core.models.geometry.SUMS`.
        """
        sizes = self.sizes
        samples = sizes.sampled // sizes.groups
        axes = sizes.geometry.axes(sizes.context, len(sizes.positions), samples)
        return {
            name: self.zeros(*map(axes.__getitem__, shape.split()), wide=self.wide)
            for name, shape in SUMS[self.name].items()
        }

    def add(self, name: str, layer: int, values: Tensor, *at: slice) -> None:
        """Add values to a layer's sum, or to the part ``at`` of it."""
        total = self.sums[name][layer][at]
        grains = values.to(self.device).mul(1 / self.grain).round_()
        total.add_(grains, alpha=self.grain)

    @classmethod
    def finish(cls, blocks: Sequence[Sums], sizes: Sizes, windows: int) -> dict[str, np.ndarray]:
        """Compute means ``[layer, ...]`` and the groups' differences from the sums of all groups.

        ``windows`` is the number of windows that the statistic has seen.
        """
        arrays: dict[str, np.ndarray] = {}
        for name, mean in cls.means.items():
            sums = np.stack([block[name].astype(np.float32) for block in blocks], axis=1)
            averaged = cls.average(mean, sums / (windows // sizes.groups), sizes)
            arrays |= {mean: averaged[mean]} if mean in cls.alone else averaged
        return arrays

    @classmethod
    def average(cls, name: str, means: np.ndarray, sizes: Sizes) -> dict[str, np.ndarray]:
        """Average the groups' means ``[layer, group, ...]``; return mean and differences."""
        return average(name, means, axis=1)

    def recorded(self, block: PatternBlock) -> slice:
        """Return which of the recorded positions are rows of a block."""
        positions, stop = self.sizes.positions, block.first_row + block.pattern.shape[2]
        return slice(bisect_left(positions, block.first_row), bisect_left(positions, stop))

    def zeros(self, *shape: int, wide: bool = True) -> Tensor:
        """Return zeros ``[layer, *shape]`` in float64 (``wide``) or float32."""
        dtype = torch.float64 if wide else torch.float32
        return torch.zeros(self.sizes.geometry.n_layers, *shape, dtype=dtype, device=self.device)


def fitted(x: Tensor, width: int, heads: int | None = None, axis: int = 0) -> Tensor:
    """Enlarge one layer's queries or keys ``[..., d]`` to the sizes of the largest layer.

    Dimensions are padded with zeros, which does not change products. Key heads along ``axis`` are
    repeated to ``heads``.
    """
    if x.shape[-1] < width:
        x = torch.nn.functional.pad(x, (0, width - x.shape[-1]))
    if heads is not None and x.shape[axis] < heads:
        x = repeat_kv(x, heads, axis)
    return x


def widened(values: Tensor, like: Tensor) -> Tensor:
    """Return values with the device and dtype of ``like``.

    Values are moved before they are converted, because ``mps`` has no float64.
    """
    return values.to(like.device).to(like.dtype)


def over_texts(x: Float[Tensor, "text head pos d"]) -> Float[Tensor, "head pos d"]:
    """Return the sum over texts in float32, reading ``x`` in memory order.

    Projections write queries and keys position by position, with the heads of a position adjacent.
    Summing head by head instead takes five times as long.
    """
    x = x.float()
    if x.stride(1) < x.stride(2):
        return x.transpose(1, 2).sum(dim=0).transpose(0, 1)
    return x.sum(dim=0)
