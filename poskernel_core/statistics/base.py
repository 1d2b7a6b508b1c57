"""What every statistic has in common: a plan of sizes, sums that add, and a way to finish them.

A statistic holds *sums* over windows. Two of them, gathered over disjoint windows, merge by
addition, so a pass can be cut into shards, run anywhere, stopped, resumed and added up. Every
array has the layer as its first axis, so that the store can keep and load one layer at a time;
an array that holds fewer layers than the model belongs to the first ones only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from poskernel_core.common.attention import repeat_kv
from poskernel_core.forward.observers import Observer
from poskernel_core.models.geometry import Geometry

__all__ = ["Plan", "Statistic", "Sums", "fitted", "over_texts"]

Sums = dict[str, np.ndarray]


@dataclass(frozen=True)
class Plan:
    """Sizes of one pass.

    Attributes:
        geometry: sizes of the model.
        context: ``T``, tokens per window, the start token included.
        windows: number of windows in all shards together.
        positions: recorded query positions, ascending, all below ``context``.
        samples: queries kept per position; the first windows give them.
        start_token: whether position 0 holds the start token.
        pattern_windows: how many first windows statistics of the attention itself see.
    """

    geometry: Geometry
    context: int
    windows: int
    positions: tuple[int, ...]
    samples: int
    start_token: bool
    pattern_windows: int | None = None

    @property
    def seen(self) -> int:
        """How many windows statistics of the attention itself see."""
        return min(self.windows, self.pattern_windows or self.windows)


class Statistic(Observer, ABC):
    """Sums of one kind over the windows of a pass; subclasses fill :attr:`sums`.

    The samples of a batch are the numbers of its windows. Sums are on the device of the pass; where
    that has no float64 (``mps``), they are on the CPU, and what is added to them moves there first.
    """

    name: ClassVar[str]

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self.plan = plan
        self.device = torch.device("cpu") if device.type == "mps" else device
        self.sums: dict[str, Tensor] = self.allocate()

    @abstractmethod
    def allocate(self) -> dict[str, Tensor]:
        """Return the sums, all zero, each with the layer as its first axis."""

    @staticmethod
    @abstractmethod
    def finish(sums: Sums, plan: Plan) -> dict[str, np.ndarray]:
        """Turn sums over all windows into means, as float32 arrays ``[layer, ...]``."""

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
