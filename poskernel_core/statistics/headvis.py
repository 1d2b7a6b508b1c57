"""The six per-head metrics of HeadVis, by its own definitions."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from poskernel_core.common.jackknife import jackknife
from poskernel_core.forward.attention import PatternBlock, diagonal_sums
from poskernel_core.forward.observers import Batch
from poskernel_core.statistics.base import Plan, Statistic, Sums
from poskernel_core.statistics.moments import GROUPS
from poskernel_core.statistics.per_text import widened

__all__ = ["LEAST_INDUCTION", "HeadVisMetrics"]

LEAST_INDUCTION = 0.01
"""Attention below this counts as none in the induction score."""

QUANTITIES = 6
"""Attention to the token itself and to the previous one, entropy, distance, its square, and
attention to what followed an earlier equal token."""


class HeadVisMetrics(Statistic):
    """``headvis [layer, head, metric]``: self, previous, entropy, distance, variance, induction.

    Sums over all tokens of all texts, key 0 and the start token included, are divided once. Entropy
    is in nats, distance in tokens, its variance in tokens squared, the others are shares of
    attention. ``headvis_error`` is a jackknife over ten groups of texts. NaN where nothing is
    counted: previous tokens in texts of one token, induction in texts where no token repeats.

    Source: the metrics that the pipeline of HeadVis computes.
    """

    name = "headvis"
    wants_patterns = True

    def allocate(self) -> dict[str, Tensor]:
        """Return the sums of each group of texts, and how many of its tokens occurred before."""
        heads = self.plan.geometry.n_heads
        return {
            "headvis_sum": self.zeros(GROUPS, heads, QUANTITIES),
            "headvis_repeats": self.zeros(GROUPS),
        }

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        """Add a block's rows to its texts; the last block closes them."""
        rows, tokens = block.pattern, batch.tokens.to(block.pattern.device)
        diagonals = diagonal_sums(block, self.plan.context)
        logs = rows.clamp_min(torch.finfo(rows.dtype).tiny).log_()
        entropy = -logs.mul_(rows).sum(dim=(2, 3))
        induction = _induction(block, tokens)
        here = (diagonals, entropy, induction)
        if block.first_row == 0:
            self._texts = here
        else:
            diagonals, entropy, induction = (
                before + each for before, each in zip(self._texts, here, strict=True)
            )
            self._texts = (diagonals, entropy, induction)
        if block.first_row + rows.shape[2] == self.plan.context:
            self._close_texts(block.layer, tokens, batch.samples)

    def _close_texts(self, layer: int, tokens: Tensor, samples: range) -> None:
        total = self.sums["headvis_sum"]
        diagonals, entropy, induction = (widened(each, total) for each in self._texts)
        offsets = torch.arange(self.plan.context, dtype=total.dtype, device=total.device)
        near = torch.nn.functional.pad(diagonals, (0, 1))
        values = torch.stack(
            [
                near[..., 0],
                near[..., 1],
                entropy,
                diagonals @ offsets,
                diagonals @ offsets.square(),
                induction,
            ],
            dim=-1,
        )
        group = torch.tensor(samples, device=total.device) % GROUPS
        total[layer].index_add_(0, group, values)
        seen_before = tokens.shape[1] - _distinct(tokens)
        self.sums["headvis_repeats"][layer].index_add_(0, group, widened(seen_before, total))

    @staticmethod
    def finish(sums: Sums, plan: Plan) -> dict[str, np.ndarray]:
        """Divide the sums of all texts, and those that leave out one group of texts each."""
        texts = np.array([len(range(group, plan.windows, GROUPS)) for group in range(GROUPS)])
        there = texts > 0
        total, repeats = sums["headvis_sum"].astype(float), sums["headvis_repeats"].astype(float)
        whole, again = total.sum(axis=1), repeats.sum(axis=1)
        without = _metrics(
            (whole[:, None] - total)[:, there],
            (again[:, None] - repeats)[:, there, None],
            (texts.sum() - texts)[there, None],
            plan.context,
        )
        mean = _metrics(whole, again[:, None], texts.sum(keepdims=True), plan.context)
        return {
            "headvis": mean.astype(np.float32),
            "headvis_error": jackknife(without, axis=1).astype(np.float32),
        }


def _metrics(sums: np.ndarray, repeats: np.ndarray, texts: np.ndarray, context: int) -> np.ndarray:
    """Return the metrics ``[..., head, metric]`` of sums ``[..., head, quantity]``."""
    with np.errstate(invalid="ignore", divide="ignore"):
        own, previous, entropy, distance, square, induction = np.moveaxis(sums, -1, 0)
        tokens = texts * context
        mean = distance / tokens
        pairs = texts * (context - 1)
        found = [
            own / tokens,
            previous / np.where(pairs > 0, pairs, np.nan),
            entropy / tokens,
            mean,
            square / tokens - mean**2,
            induction / np.where(repeats > 0, repeats, np.nan),
        ]
    return np.stack(found, axis=-1)


def _induction(block: PatternBlock, tokens: Tensor) -> Tensor:
    """Return the attention of a block's rows to what followed earlier equal tokens.

    ``[text, head]``, summed over rows and keys; ``tokens [text, pos]``.
    """
    first, start = block.first_row, block.first_key
    rows, keys = block.pattern.shape[2:]
    before = torch.nn.functional.pad(tokens, (1, 0), value=-1)[:, start : start + keys]
    followed = tokens[:, first : first + rows, None] == before[:, None, :]
    at = torch.arange(keys, device=tokens.device) + start
    past = at <= torch.arange(first, first + rows, device=tokens.device)[:, None]
    text, row, key = (followed & past).nonzero(as_tuple=True)
    paid = block.pattern[text, :, row, key]
    paid = paid.masked_fill(paid < LEAST_INDUCTION, 0)
    total = paid.new_zeros(block.pattern.shape[:2])
    return total.index_add_(0, text, paid)


def _distinct(tokens: Tensor) -> Tensor:
    """Return how many different tokens each text has, ``[text]``."""
    ordered = tokens.sort(dim=1).values
    return 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(dim=1)
