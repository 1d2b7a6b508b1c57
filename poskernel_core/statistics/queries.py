"""Sampled queries ``q_n``: each of the first windows gives its own at every recorded position."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.observers import Batch
from poskernel_core.statistics.base import Plan, Statistic, Sums, fitted

__all__ = ["SampledQueries"]


class SampledQueries(Statistic):
    """``queries [layer, query, head, sample, d]``: sample ``s`` comes from window ``s``.

    Slots of different windows are disjoint and start as zero, so that merging is addition.
    """

    name = "queries"

    def allocate(self) -> dict[str, Tensor]:
        """Return ``queries [layer, query, head, sample, d]``, all zero."""
        plan, geometry = self.plan, self.plan.geometry
        samples = min(plan.samples, plan.windows)
        shape = (len(plan.positions), geometry.n_heads, samples, geometry.d_head)
        return {"queries": self.zeros(*shape, wide=False)}

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        """Keep the queries of those windows that are among the first ``samples``."""
        slots = self.sums["queries"][call.layer]
        first = batch.samples.start
        count = min(slots.shape[2] - first, call.q.shape[0])
        if count > 0:
            taken = call.q[:count, :, list(self.plan.positions)].float()
            taken = fitted(taken, slots.shape[-1])
            slots[:, :, first : first + count] = taken.permute(2, 1, 0, 3)

    @staticmethod
    def finish(sums: Sums, plan: Plan) -> dict[str, np.ndarray]:
        """Return the queries as they are."""
        return {"queries": sums["queries"].astype(np.float32)}
