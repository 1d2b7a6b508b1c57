"""Diagonal profile of the mean observed attention."""

from __future__ import annotations

from collections.abc import Mapping

from poskernel_core.analyses.base import Analysis, Params, Progress, Result
from poskernel_core.config import RunSpec
from poskernel_core.views import StatisticsView, stacked

__all__ = ["DiagonalProfile"]

AXES = ("layer", "head", "offset")


class DiagonalProfile(Analysis):
    """``profile [layer, head, offset]``: ``P(k)``, the mean of ``A(n, n-k)`` over texts and ``n``.

    The start token's row and column are left out. Error: over texts. Source: "The positional
    embedding matrix and previous-token heads" (definitions, section 6).
    """

    name = "profile"
    title = "Diagonal profile of the mean attention"
    params = Params

    def needs(self, run: RunSpec, params: Params) -> Mapping[str, RunSpec]:
        """Return the run itself."""
        return {"main": run}

    def compute(
        self, statistics: Mapping[str, StatisticsView], params: Params, progress: Progress
    ) -> Result:
        """Read the profile off the statistics."""
        view = statistics["main"]
        progress(1, 1)
        return Result(
            analysis=self.name,
            params={},
            values={"profile": stacked(view, "profile")},
            axes={"profile": AXES},
            units={"profile": "share of attention"},
            errors={"profile": stacked(view, "profile_error")},
        )
