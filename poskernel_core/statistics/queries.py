"""Sampled queries ``q_n`` at recorded positions, from the first windows of each group."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.observers import Batch
from poskernel_core.statistics.base import Sizes, Statistic, Sums, fitted


class SampledQueries(Statistic):
    """``queries [layer, query, head, sample, d]``: sample ``s`` comes from window ``s``.

    Sample ``s`` belongs to group ``s % G``. Every window has separate slots, initially zero, so
    blocks can be merged by addition.
    """

    name = "queries"
    means: ClassVar = {"queries": "queries"}
    query_axes: ClassVar = {"queries": 1}
    wide = False

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        slots = self.sums["queries"][call.layer]
        first = batch.samples.start // self.sizes.groups
        count = min(slots.shape[2] - first, call.q.shape[0])
        if count > 0:
            taken = call.q[:count, :, list(self.sizes.positions)].float()
            taken = fitted(taken, slots.shape[-1])
            slots[:, :, first : first + count] += taken.permute(2, 1, 0, 3).to(self.device)

    @classmethod
    def finish(cls, blocks: Sequence[Sums], sizes: Sizes, windows: int) -> dict[str, np.ndarray]:
        first = sizes.sampled // sizes.groups
        slots = np.stack([block["queries"][..., :first, :] for block in blocks], axis=-2)
        shape = (*slots.shape[:3], sizes.sampled, slots.shape[-1])
        return {"queries": slots.reshape(shape).astype(np.float32)}
