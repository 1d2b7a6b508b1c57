"""Diagonal profile of the mean observed attention."""

from poskernel_core.analyses.base import KEPT_QUERIES, Analysis, Params, Progress, Statistics
from poskernel_core.common.result import Result, estimates
from poskernel_core.common.views import stacked


class DiagonalProfile(Analysis[Params]):
    r"""Mean attention by offset, for every head.

    Formula: $P(k) = \mathbb{E}_{\text{text},\,n}\, A(n, n-k)$.

    Choices: the start token's row and column are left out, as in the author's code.

    Limits: at large offsets, means are over few pairs, most of them with the first keys.

    Source: "The positional embedding matrix and previous-token heads".
    """

    name = "profile"
    title = "Diagonal profile of the mean attention"
    noun_phrase = "the mean attention by offset"
    error_counts = "windows"
    values = estimates("""
        profile [layer head offset], share of attention: $P(k)$, the mean attention to the token $k$
            places back
    """)
    continued = "profile"
    precomputed = "always"
    ignores = KEPT_QUERIES

    def compute(self, statistics: Statistics, params: Params, progress: Progress) -> Result:
        view = statistics["main"]
        progress(1, 1)
        return self.result(params, {"profile": stacked(view, "profile")})
