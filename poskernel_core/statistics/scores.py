"""The mean raw score near the main diagonal, on both sides of it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from poskernel_core.common.specs import BAND
from poskernel_core.forward.attention import AttentionCall, band_sums
from poskernel_core.forward.observers import Batch
from poskernel_core.statistics.base import Plan, Statistic, Sums, fitted, over_texts
from poskernel_core.statistics.per_text import add_texts, mean_of_texts, widened

__all__ = ["RawScores"]

CONTRASTS = np.zeros((2, 2 * BAND + 1))
"""Weights of the two contrasts over the band: each offset against the line through -1 and 2."""
CONTRASTS[0, BAND + np.array([-1, 0, 2])] = -2 / 3, 1, -1 / 3
CONTRASTS[1, BAND + np.array([-1, 1, 2])] = -1 / 3, 1, -2 / 3


class RawScores(Statistic):
    """Mean scores before the mask, by offset ``n - i``.

    * ``score_profile [layer, head, band]``: the mean of ``s(n, n-k)`` over texts and ``n``, for
      ``k`` from ``-BAND`` to ``BAND``; the start token's row and column are left out.
    * ``score_contrast [layer, head, 2]``: the profile at ``k = 0`` and at ``k = 1``, minus the
      straight line through its values at ``k = -1`` and ``k = 2``.

    * ``mean_queries [layer, head, pos, d]``: the mean query at each position, scale not applied.

    The first two with standard errors over texts (``_error``). Source: the dark and the bright
    diagonal of "The positional embedding matrix and previous-token heads".
    """

    name = "scores"

    def allocate(self) -> dict[str, Tensor]:
        """Return the sums of profiles and contrasts, and of their squares."""
        geometry = self.plan.geometry
        heads = geometry.n_heads
        band, contrasts = self.zeros(heads, 2 * BAND + 1), self.zeros(heads, 2)
        return {
            "score_sum": band,
            "score_square": torch.zeros_like(band),
            "contrast_sum": contrasts,
            "contrast_square": torch.zeros_like(contrasts),
            "query_sum": self.zeros(heads, self.plan.context, geometry.d_head),
        }

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        """Add the profile and the contrasts of every text of a batch, and the queries."""
        summed = over_texts(call.q)
        queries = fitted(summed, self.plan.geometry.d_head).to(self.device)
        self.sums["query_sum"][call.layer] += queries
        total = self.sums["score_sum"]
        band = band_sums(call, BAND, int(self.plan.start_token))
        means = widened(band, total) / _pairs(self.plan).to(total)
        contrasts = means @ torch.from_numpy(CONTRASTS.T).to(total)
        for name, values in (("score", means), ("contrast", contrasts)):
            add_texts(self.sums, name, call.layer, values)

    @staticmethod
    def finish(sums: Sums, plan: Plan) -> dict[str, np.ndarray]:
        """Divide by the number of windows; offsets without a pair become NaN."""
        queries = sums["query_sum"] / plan.windows
        found: dict[str, np.ndarray] = {"mean_queries": queries.astype(np.float32)}
        empty = (_lengths(plan) <= 0).numpy()
        lacking = {"score": empty, "contrast": np.full(2, empty[BAND - 1 : BAND + 3].any())}
        for name, target in (("score", "score_profile"), ("contrast", "score_contrast")):
            mean, error = mean_of_texts(sums, name, plan.windows)
            found[target] = np.where(lacking[name], np.nan, mean).astype(np.float32)
            found[f"{target}_error"] = np.where(lacking[name], np.nan, error).astype(np.float32)
        return found


def _lengths(plan: Plan) -> Tensor:
    start = 1 if plan.start_token else 0
    return plan.context - start - torch.arange(-BAND, BAND + 1, device="cpu").abs()


def _pairs(plan: Plan) -> Tensor:
    """Return how many pairs ``(n, n-k)`` each offset is averaged over (at least 1), ``[band]``."""
    return _lengths(plan).clamp(min=1)
