"""Mean observed attention: rows at recorded positions, and the profile along diagonals."""

from typing import ClassVar

import torch
from torch import Tensor

from poskernel_core.forward.attention import PatternBlock, diagonal_sums
from poskernel_core.forward.observers import Batch
from poskernel_core.statistics.base import Statistic, widened


class MeanPatterns(Statistic):
    """Mean attention, exact over every text and every position.

    * ``mean_rows [layer, head, query, key]``: ``E_text[A(n, i)]`` at the recorded positions.
    * ``profile [layer, head, offset]``: ``P(k)``, the mean of ``A(n, n-k)`` over texts and ``n``,
      with the start token's row and column left out.
    """

    name = "patterns"
    means: ClassVar = {"row_sum": "mean_rows", "profile_sum": "profile"}
    query_axes: ClassVar = {"row_sum": 2}
    grain = 2.0**-40
    wants_patterns = True
    _diagonals: Tensor

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        self._add_rows(block)
        sums = diagonal_sums(block, self.sizes.context, without_key_0=self.sizes.start_token)
        self._diagonals = sums if block.first_row == 0 else self._diagonals + sums
        if block.first_row + block.pattern.shape[2] == self.sizes.context:
            self._close_texts(block.layer)

    def _add_rows(self, block: PatternBlock) -> None:
        recorded = self.recorded(block)
        if positions := self.sizes.positions[recorded]:
            rows = torch.tensor(positions, device=block.pattern.device) - block.first_row
            stop = block.first_key + block.pattern.shape[3]
            at = slice(None), recorded, slice(block.first_key, stop)
            seen = block.pattern.index_select(2, rows).sum(dim=0)
            self.add("row_sum", block.layer, seen, *at)

    def _close_texts(self, layer: int) -> None:
        sizes, total = self.sizes, self.sums["profile_sum"]
        offsets = torch.arange(sizes.context, dtype=total.dtype, device=total.device)
        counts = (sizes.context - int(sizes.start_token) - offsets).clamp(min=1)
        self.add("profile_sum", layer, (widened(self._diagonals, total) / counts).sum(dim=0))
