"""Sums for the six per-head metrics of HeadVis, by HeadVis' definitions."""

from typing import ClassVar

import torch
from torch import Tensor

from poskernel_core.forward.attention import PatternBlock, diagonal_sums
from poskernel_core.forward.observers import Batch
from poskernel_core.statistics.base import Statistic, widened

MIN_INDUCTION = 0.01
"""Attention below this counts as 0 in the induction score."""


class HeadVisSums(Statistic):
    """``headvis [layer, head, quantity]``: six quantities from which the metrics are computed.

    Each is a sum over all tokens of a text, averaged over texts; key 0 and the start token are
    included. The quantities are attention to the token itself, attention to the previous token,
    entropy in nats, distance in tokens, squared distance, and attention to the successors of
    earlier equal tokens. ``headvis_repeats [layer]`` is how many tokens of a text have occurred
    earlier in the same text, on average.

    Source: the metrics computed by HeadVis' pipeline.
    """

    name = "headvis"
    means: ClassVar = {"headvis_sum": "headvis", "headvis_count": "headvis_repeats"}
    grain = 2.0**-16
    wants_patterns = True
    _texts: list[Tensor]

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        rows, tokens = block.pattern, batch.tokens.to(block.pattern.device)
        diagonals = diagonal_sums(block, self.sizes.context)
        logs = rows.clamp_min(torch.finfo(rows.dtype).tiny).log_()
        entropy = -logs.mul_(rows).sum(dim=(2, 3))
        induction = _induction(block, tokens)
        here = [diagonals, entropy, induction]
        if block.first_row > 0:
            here = [before + current for before, current in zip(self._texts, here, strict=True)]
        self._texts = here
        if block.first_row + rows.shape[2] == self.sizes.context:
            self._close_texts(block.layer, tokens)

    def _close_texts(self, layer: int, tokens: Tensor) -> None:
        total = self.sums["headvis_sum"]
        diagonals, entropy, induction = (widened(part, total) for part in self._texts)
        offsets = torch.arange(self.sizes.context, dtype=total.dtype, device=total.device)
        near = torch.nn.functional.pad(diagonals, (0, 1))
        distances = diagonals @ offsets, diagonals @ offsets.square()
        values = torch.stack([near[..., 0], near[..., 1], entropy, *distances, induction], dim=-1)
        self.add("headvis_sum", layer, values.sum(dim=0))
        ordered = tokens.sort(dim=1).values
        seen_before = ordered[:, 1:] == ordered[:, :-1]
        self.add("headvis_count", layer, widened(seen_before.sum(), total))


def _induction(block: PatternBlock, tokens: Tensor) -> Tensor:
    """Return the attention of a block's rows to the successors of earlier equal tokens.

    The result is ``[text, head]``, summed over rows and keys; ``tokens`` is ``[text, pos]``.
    """
    first, start = block.first_row, block.first_key
    rows, keys = block.pattern.shape[2:]
    before = torch.nn.functional.pad(tokens, (1, 0), value=-1)[:, start : start + keys]
    followed = tokens[:, first : first + rows, None] == before[:, None, :]
    at = torch.arange(keys, device=tokens.device) + start
    past = at <= torch.arange(first, first + rows, device=tokens.device)[:, None]
    text, row, key = (followed & past).nonzero(as_tuple=True)
    paid = block.pattern[text, :, row, key]
    paid = paid.masked_fill(paid < MIN_INDUCTION, 0)
    total = paid.new_zeros(block.pattern.shape[:2])
    return total.index_add_(0, text, paid)
