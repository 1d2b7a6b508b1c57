"""The mean raw score near the main diagonal, above and below it; and mean queries."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from poskernel_core.common.specs import BAND
from poskernel_core.forward.attention import AttentionCall, band_sums
from poskernel_core.forward.observers import Batch
from poskernel_core.statistics.base import Sizes, Statistic, fitted, over_texts, widened


class RawScores(Statistic):
    """Mean scores before the mask, by offset ``n - i``.

    * ``score_profile [layer, head, band]``: the mean of ``s(n, n-k)`` over texts and ``n``, for
      ``k`` from ``-BAND`` to ``BAND``; the start token's row and column are left out.
    * ``mean_queries [layer, head, pos, d]``: the mean query at each position, scale not applied.

    Source: the dark and the bright diagonal of "The positional embedding matrix and previous-token
    heads".
    """

    name = "scores"
    means: ClassVar = {"score_sum": "score_profile", "query_sum": "mean_queries"}

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        queries = fitted(over_texts(call.q), self.sizes.geometry.d_head)
        self.add("query_sum", call.layer, queries)
        total = self.sums["score_sum"]
        band = band_sums(call, BAND, int(self.sizes.start_token))
        pairs = _lengths(self.sizes).clamp(min=1)
        means = widened(band, total) / pairs.to(total)
        self.add("score_sum", call.layer, means.sum(dim=0))

    @classmethod
    def average(cls, name: str, means: np.ndarray, sizes: Sizes) -> dict[str, np.ndarray]:
        if name == "score_profile":
            means = np.where((_lengths(sizes) <= 0).numpy(), np.nan, means)
        return super().average(name, means, sizes)


def _lengths(sizes: Sizes) -> Tensor:
    """Return the number of pairs ``(n, n-k)`` for each offset (none below 1), ``[band]``."""
    start = 1 if sizes.start_token else 0
    return sizes.context - start - torch.arange(-BAND, BAND + 1, device="cpu").abs()
