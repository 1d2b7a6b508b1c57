"""Mean attention to the first keys of a text, and to a learned sink."""

from typing import ClassVar

import torch
from torch import Tensor

from poskernel_core.forward.attention import PatternBlock
from poskernel_core.forward.observers import Batch
from poskernel_core.statistics.base import Statistic

FIRST_KEYS = 8


class SinkSums(Statistic):
    """``alpha [layer, head, key]``: mean attention to each of the first keys, over later queries.

    Key ``i`` is averaged over the queries from ``i`` on, then over texts. ``learned [layer, head]``
    is the mean attention that no key receives, over all queries and texts.
    """

    name = "sinks"
    means: ClassVar = {"alpha_sum": "alpha", "learned_sum": "learned"}
    grain = 2.0**-40
    wants_patterns = True

    def allocate(self) -> dict[str, Tensor]:
        heads, keys = self.sizes.geometry.n_heads, min(FIRST_KEYS, self.sizes.context)
        return {"alpha_sum": self.zeros(heads, keys), "learned_sum": self.zeros(heads)}

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        rows = block.pattern
        if block.first_row == 0:
            like = self.sums["alpha_sum"]
            self._alpha = like.new_zeros(len(rows), *like.shape[1:])
            self._held = like.new_zeros(rows.shape[:2])
        seen = rows[..., : max(0, self._alpha.shape[-1] - block.first_key)].sum(dim=2)
        seen, held = seen.to(self.device), rows.sum(dim=(2, 3)).to(self.device)
        self._alpha[..., block.first_key : block.first_key + seen.shape[-1]] += seen
        self._held += held
        if block.first_row + rows.shape[2] == self.sizes.context:
            queries = self.sizes.context - torch.arange(self._alpha.shape[-1], device=seen.device)
            self.add("alpha_sum", block.layer, (self._alpha / queries).sum(dim=0))
            learned = 1 - self._held / self.sizes.context
            self.add("learned_sum", block.layer, learned.sum(dim=0))
            del self._alpha, self._held
