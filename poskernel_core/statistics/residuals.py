"""Mean residual stream before every layer, by position."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from poskernel_core.statistics.base import Plan, Statistic, Sums

__all__ = ["MeanResiduals"]


class MeanResiduals(Statistic):
    """``mean_residuals [layer, pos, model]``: the mean residual stream before each layer."""

    name = "residuals"

    def allocate(self) -> dict[str, Tensor]:
        """Return ``residual_sum [layer, pos, model]``."""
        return {"residual_sum": self.zeros(self.plan.context, self.plan.geometry.d_model)}

    def residual(self, layer: int, x: Tensor, first_window: int) -> None:
        """Add the residual stream of a batch."""
        self.sums["residual_sum"][layer] += x.float().sum(dim=0)

    @staticmethod
    def finish(sums: Sums, plan: Plan) -> dict[str, np.ndarray]:
        """Divide by the number of windows."""
        return {"mean_residuals": (sums["residual_sum"] / plan.windows).astype(np.float32)}
