"""Means by position of residual streams, attention inputs and positional embeddings."""

from typing import ClassVar

import torch
from torch import Tensor

from poskernel_core.forward.observers import Batch
from poskernel_core.statistics.base import Statistic, widened


class MeanResiduals(Statistic):
    """The mean residual stream, and the variation of single texts over positions.

    * ``mean_residuals [layer, pos, model]``: the mean residual stream before each layer.
    * ``centred_square [layer]``: the mean over texts of ``|x - mean over positions of x|^2``,
      summed over positions and dimensions, without a start token's position.
    """

    name = "residuals"
    means: ClassVar = {"residual_sum": "mean_residuals", "centred_square_sum": "centred_square"}
    alone = frozenset(means.values())
    grain = 2.0**-20

    def residual(self, layer: int, x: Tensor, batch: Batch) -> None:
        x, total = x.float(), self.sums["centred_square_sum"]
        self.add("residual_sum", layer, x.sum(dim=0))
        after = x[:, int(self.sizes.start_token) :]
        centred = after - after.mean(dim=1, keepdim=True)
        lengths = torch.linalg.vector_norm(centred, dim=-1)
        self.add("centred_square_sum", layer, widened(lengths, total).square().sum())


class MeanNormed(Statistic):
    """``mean_normed [layer, pos, model]``: the mean input of each layer's attention (post-ln1)."""

    name = "normed"
    means: ClassVar = {"normed_sum": "mean_normed"}
    alone = frozenset(means.values())

    def attention_input(self, layer: int, x: Tensor, batch: Batch) -> None:
        self.add("normed_sum", layer, x.float().sum(dim=0))


class PositionRows(Statistic):
    """``position_rows [1, pos, model]``: the rows of ``W_pos`` as they enter the stream.

    Only layer 0 has them. Models without learned positions have none: the rows stay 0.
    """

    name = "positions"
    means: ClassVar = {"position_sum": "position_rows"}
    alone = frozenset(means.values())

    def allocate(self) -> dict[str, Tensor]:
        return {"position_sum": self.zeros(self.sizes.context, self.sizes.geometry.d_model)[:1]}

    def positions(self, x: Tensor, batch: Batch) -> None:
        self.add("position_sum", 0, x.float().mean(dim=0) * len(batch.tokens))
