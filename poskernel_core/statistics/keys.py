"""Mean keys ``m_i`` per head and position."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.observers import Batch
from poskernel_core.statistics.base import Plan, Statistic, Sums, fitted, over_texts

__all__ = ["MeanKeys"]


class MeanKeys(Statistic):
    """``mean_keys [layer, kv, key, d]``: the mean key at each position, rotary rotation applied.

    Source: "Positional kernels of attention heads", where ``p_i W_K + b_K`` with ``p_i = E[x_i]``
    is the same mean for learned absolute positions.
    """

    name = "keys"

    def allocate(self) -> dict[str, Tensor]:
        """Return ``key_sum [layer, kv, key, d]``."""
        geometry = self.plan.geometry
        shape = (geometry.n_kv_heads, self.plan.context, geometry.d_head)
        return {"key_sum": self.zeros(*shape)}

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        """Add the keys of a batch."""
        geometry, summed = self.plan.geometry, over_texts(call.k)
        keys = fitted(summed, geometry.d_head, geometry.n_kv_heads).to(self.device)
        self.sums["key_sum"][call.layer] += keys

    @staticmethod
    def finish(sums: Sums, plan: Plan) -> dict[str, np.ndarray]:
        """Divide by the number of windows."""
        return {"mean_keys": (sums["key_sum"] / plan.windows).astype(np.float32)}
