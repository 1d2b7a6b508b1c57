"""Diagonal profile of the mean observed attention."""

from __future__ import annotations

from collections.abc import Mapping

from poskernel_core.analyses.base import Analysis, Params, Progress, Result
from poskernel_core.config import RunSpec
from poskernel_core.views import StatisticsView, stacked

__all__ = ["DiagonalProfile"]

AXES = ("layer", "head", "offset")


class DiagonalProfile(Analysis):
    r"""Mean attention by offset, for every head.

    * ``profile [layer, head, offset]``: ``P(k)``, the mean attention to the token ``k`` places
      back.

    Formula: $P(k) = \mathbb{E}_{\text{text},\,n}\, A(n, n-k)$.

    Choices: the start token's row and column are left out, as in the author's code.

    Limits: large offsets are means over few pairs, most of them with the first keys. Errors are
    over texts.

    Source: "The positional embedding matrix and previous-token heads".
    """

    name = "profile"
    title = "Diagonal profile of the mean attention"
    spoken = "the mean attention by offset"
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
