"""Mean keys ``m_i`` per head and position."""

from typing import ClassVar

from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.observers import Batch
from poskernel_core.statistics.base import Statistic, fitted, over_texts


class MeanKeys(Statistic):
    """``mean_keys [layer, kv, key, d]``: the mean key at each position, rotary rotation applied.

    Source: "Positional kernels of attention heads", where ``p_i W_K + b_K`` with ``p_i = E[x_i]``
    is the same mean for learned absolute positions.
    """

    name = "keys"
    means: ClassVar = {"key_sum": "mean_keys"}

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        geometry, summed = self.sizes.geometry, over_texts(call.k)
        keys = fitted(summed, geometry.d_head, geometry.n_kv_heads)
        self.add("key_sum", call.layer, keys)
