"""What every statistic has in common: a plan of sizes, sums that add, and means that come of them.

A statistic holds *sums* over the windows of one group of texts: a block. Blocks of disjoint windows
merge by addition, whose result does not depend on its order, so a pass can be cut into shards, run
anywhere, stopped, resumed and added up. The blocks of all groups make the means, and how each group
differs from them. Every array has the layer as its first axis, so that the store can keep and load
one layer at a time; an array that holds fewer layers than the model belongs to the first ones only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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
from poskernel_core.forward.observers import Observer
from poskernel_core.models.geometry import Geometry
from poskernel_core.models.token_table import TokenTable

__all__ = ["Plan", "Statistic", "Sums", "fitted", "over_texts", "widened"]

Sums = dict[str, np.ndarray]

STATISTICS: dict[str, type[Statistic]] = {}
"""Every statistic by its name; a class is in it as soon as it is defined."""


@dataclass(frozen=True)
class Plan:
    """Sizes of one pass.

    Attributes:
        geometry: sizes of the model.
        context: ``T``, tokens per window, the start token included.
        windows: number of windows in all shards together.
        positions: recorded query positions, ascending, all below ``context``.
        samples: how many queries per position are asked for; the first windows give them.
        start_token: whether position 0 holds the start token.
        pattern_windows: how many first windows are asked for of which statistics of the attention
            itself are kept; None: all.
        dealt: what the groups are made of.
        table: what the tokenizer knows of each token id, where a statistic wants it.
    """

    geometry: Geometry
    context: int
    windows: int
    positions: tuple[int, ...]
    samples: int
    start_token: bool
    pattern_windows: int | None = None
    dealt: Dealt = "windows"
    table: TokenTable | None = None

    @property
    def groups(self) -> int:
        """How many groups the windows belong to: window ``w`` to group ``w % groups``."""
        return groups_of(self.windows)

    @property
    def seen(self) -> int:
        """How many windows statistics of the attention itself see."""
        return first_of_all(self.pattern_windows or self.windows, self.windows)

    @property
    def sampled(self) -> int:
        """How many windows give their queries."""
        return first_of_all(self.samples, self.windows)


class Statistic(Observer, ABC):
    """Sums of one kind over the windows of a group; subclasses add to them.

    The samples of a batch are the numbers of its windows. Sums are on the device of the pass; where
    that has no float64 (``mps``), they are on the CPU, and what is added to them moves there first.

    Attributes:
        name: what a run asks for.
        means: the name of the mean that each sum becomes.
        alone: the means that are kept without groups.
        grain: what is added is rounded to multiples of it. So sums are exact, in whatever order
            they are added, as long as they stay below ``2**53`` grains.
        wants_table: whether it reads ``plan.table``, what the tokenizer knows of each token id.
    """

    name: ClassVar[str]
    means: ClassVar[Mapping[str, str]]
    alone: ClassVar[frozenset[str]] = frozenset()
    grain: ClassVar[float] = 2.0**-28
    wants_table: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in vars(cls):
            STATISTICS[cls.name] = cls

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self.plan = plan
        self.device = torch.device("cpu") if device.type == "mps" else device
        self.sums: dict[str, Tensor] = self.allocate()

    @abstractmethod
    def allocate(self) -> dict[str, Tensor]:
        """Return the sums, all zero, each with the layer as its first axis."""

    def add(self, name: str, layer: int, values: Tensor, *at: slice) -> None:
        """Add values to a layer's sum, or to a part of it."""
        total = self.sums[name][layer][at]
        grains = values.to(self.device).mul(1 / self.grain).round_()
        total.add_(grains, alpha=self.grain)

    @classmethod
    def finish(cls, blocks: Sequence[Sums], plan: Plan, windows: int) -> dict[str, np.ndarray]:
        """Turn the sums of every group into means ``[layer, ...]``, and the groups' differences.

        ``windows`` is how many windows the statistic has seen.
        """
        found: dict[str, np.ndarray] = {}
        for name, mean in cls.means.items():
            sums = np.stack([block[name].astype(np.float32) for block in blocks], axis=1)
            averaged = cls.average(mean, sums / (windows // plan.groups), plan)
            found |= {mean: averaged[mean]} if mean in cls.alone else averaged
        return found

    @classmethod
    def average(cls, name: str, means: np.ndarray, plan: Plan) -> dict[str, np.ndarray]:
        """Return the mean of the groups' means ``[layer, group, ...]``, with their differences."""
        return average(name, means, axis=1)

    def zeros(self, *shape: int, wide: bool = True) -> Tensor:
        """Return zeros in float64 (``wide``) or float32."""
        dtype = torch.float64 if wide else torch.float32
        return torch.zeros(self.plan.geometry.n_layers, *shape, dtype=dtype, device=self.device)


def fitted(x: Tensor, width: int, heads: int | None = None, axis: int = 0) -> Tensor:
    """Return one layer's queries or keys ``[..., d]`` as large as the largest layer's.

    Dimensions are filled up with zeros, which leaves products as they are; key heads along
    ``axis`` are repeated for the query heads that share them.
    """
    if x.shape[-1] < width:
        x = torch.nn.functional.pad(x, (0, width - x.shape[-1]))
    if heads is not None and x.shape[axis] < heads:
        x = repeat_kv(x, heads, axis)
    return x


def widened(values: Tensor, like: Tensor) -> Tensor:
    """Return values on the device and in the precision of ``like``.

    They move first: on ``mps`` nothing can be float64.
    """
    return values.to(like.device).to(like.dtype)


def over_texts(
    x: Float[Tensor, "text head pos d"],
) -> Float[Tensor, "head pos d"]:
    """Return the sum over texts in float32, read in the order in which it lies in memory.

    Queries and keys come out of their projections position by position, the heads of each side by
    side: read head by head, the same sum takes five times as long.
    """
    x = x.float()
    if x.stride(1) < x.stride(2):
        return x.transpose(1, 2).sum(dim=0).transpose(0, 1)
    return x.sum(dim=0)
