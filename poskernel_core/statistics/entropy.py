"""The mean entropy of attention rows, with 0 to 32 first keys left out."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from poskernel_core.common.specs import MAX_SKIP
from poskernel_core.forward.attention import PatternBlock
from poskernel_core.forward.observers import Batch
from poskernel_core.statistics.base import Sizes, Statistic, widened


class EntropySums(Statistic):
    """``entropy [layer, head, query, skip]``: mean over texts, in nats, at the recorded positions.

    Entry ``skip`` leaves out the first ``skip`` keys, 0 to 32, and renormalises each text's row.
    Every entry is computed separately, because entropy is not linear in the row. NaN if no key is
    left.
    """

    name = "entropy"
    means: ClassVar = {"entropy_sum": "entropy"}
    query_axes: ClassVar = {"entropy_sum": 2}
    grain = 2.0**-36
    wants_patterns = True

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        recorded = self.recorded(block)
        if rows := [position - block.first_row for position in self.sizes.positions[recorded]]:
            wide = widened(block.pattern[:, :, rows], self.sums["entropy_sum"])
            total = entropies(wide, block.first_key).sum(dim=0)
            self.add("entropy_sum", block.layer, total, slice(None), recorded)

    @classmethod
    def average(cls, name: str, means: np.ndarray, sizes: Sizes) -> dict[str, np.ndarray]:
        nothing = np.arange(MAX_SKIP + 1)[None, :] > np.array(sizes.positions)[:, None]
        return super().average(name, np.where(nothing, np.nan, means), sizes)


def entropies(rows: Tensor, first_key: int) -> Tensor:
    """Return the entropies ``[text, head, row, skip]`` of ``rows [text, head, row, key]``."""
    rows = torch.nn.functional.pad(rows, (first_key, 0))
    rows = torch.nn.functional.pad(rows, (0, max(0, MAX_SKIP + 1 - rows.shape[-1])))
    terms = torch.special.xlogy(rows, rows)
    mass, sum_of_terms = _from_each(rows), _from_each(terms)
    left = mass > 0
    safe = torch.where(left, mass, torch.ones_like(mass))
    return torch.where(left, safe.log() - sum_of_terms / safe, torch.zeros_like(mass))


def _from_each(values: Tensor) -> Tensor:
    """Return sums over the keys from ``skip`` on, ``[..., skip]``, for each ``skip``."""
    tail = values[..., MAX_SKIP:].sum(dim=-1, keepdim=True)
    first = values[..., :MAX_SKIP].flip(-1).cumsum(dim=-1).flip(-1)
    return torch.cat([first + tail, tail], dim=-1)
