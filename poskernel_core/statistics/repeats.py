"""Mean attention to the previous token, for repeated and for different tokens."""

from typing import ClassVar

import torch
from torch import Tensor

from poskernel_core.forward.attention import PatternBlock
from poskernel_core.forward.observers import Batch
from poskernel_core.statistics.base import Statistic, widened


class RepeatedTokens(Statistic):
    """``repeats [layer, head, 2]``: mean ``A(n, n-1)`` for different and for repeated tokens.

    Entry 0 is for positions where token ``n`` differs from token ``n - 1``, entry 1 for positions
    where the two are the same. Attention is averaged over each text's positions first. A text
    without positions for an entry counts as 0 there, and ``repeat_texts [layer, 2]`` is the share
    of texts with positions for the entry. So ``repeats / repeat_texts`` is the mean over these
    texts. The start token's row and column are left out.

    Source: footnote 3 of "The positional embedding matrix and previous-token heads".
    """

    name = "repeats"
    means: ClassVar = {"repeat_sum": "repeats", "repeat_count": "repeat_texts"}
    grain = 2.0**-40
    wants_patterns = True
    _previous: Tensor

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        pattern = block.pattern
        diagonal = pattern.diagonal(block.first_row - 1 - block.first_key, dim1=-2, dim2=-1)
        if block.first_row == 0:
            self._previous = pattern.new_zeros(*pattern.shape[:2], self.sizes.context)
        last = block.first_row + pattern.shape[2]
        self._previous[..., last - diagonal.shape[-1] : last] = diagonal
        if last == self.sizes.context:
            self._close_texts(block.layer, batch.tokens)

    def _close_texts(self, layer: int, tokens: Tensor) -> None:
        masks = _masks(tokens, 2 if self.sizes.start_token else 1).to(self.sums["repeat_sum"])
        count = masks.sum(dim=1)
        sums = torch.einsum("thn,tnc->thc", widened(self._previous, masks), masks)
        means = sums / count.clamp(min=1)[:, None]
        self.add("repeat_sum", layer, means.sum(dim=0))
        self.add("repeat_count", layer, (count > 0).sum(dim=0).to(count))


def _masks(tokens: Tensor, first: int) -> Tensor:
    """Return masks ``[text, pos, 2]``: tokens that differ from their predecessor, or repeat it.

    Positions before ``first`` are in neither mask.
    """
    same = torch.zeros_like(tokens, dtype=torch.bool)
    same[:, first:] = tokens[:, first:] == tokens[:, first - 1 : -1]
    other = ~same
    other[:, :first] = False
    return torch.stack([other, same], dim=-1)
