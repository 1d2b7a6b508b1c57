"""Whether the falling norms of layer 0 cause the recency of induction: with and without them."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from poskernel_core.analyses.base import Progress, Result, Subject
from poskernel_core.analyses.induction import PairsParams
from poskernel_core.analyses.random_tokens import Sampled, random_run
from poskernel_core.config import RunSpec
from poskernel_core.errors import BadRequest
from poskernel_core.layouts import second_positions
from poskernel_core.views import StatisticsView

__all__ = ["NormCause", "NormCauseParams"]


class NormCauseParams(PairsParams):
    """Parameters of the causal test."""

    random_length: int = Field(48, ge=6, le=512, description="random tokens of the slope")
    trend_from: int = Field(2, ge=0, le=64, description="first key that trends are fitted to")


class NormCause(Sampled):
    r"""Recency with layer 0's norms as they are, and with those norms made flat.

    The two runs have the same sequences, along the axis ``norms`` (as they are, flat); ``change``
    values are flat less as they are.

    * ``probability [norms]``: of the last candidate, mean over rows;
      ``probability_advantage [norms]``: last candidate less first, mean over rows;
      ``probability_rise [norms]``: last candidate in the last row less in the first.
    * ``attention [norms, layer, head]``: of the last ``[A]`` to all candidates together, mean over
      rows: whether the head still does induction; ``attention_advantage``,
      ``attention_rise [norms, layer, head]``: as for the probability.
    * ``slope [norms, layer, head]``: of the last row on random tokens, per token.
    * ``probability_change``, ``probability_advantage_change``, ``probability_rise_change``;
      ``attention_change``, ``attention_advantage_change``, ``attention_rise_change``,
      ``slope_change [layer, head]``.

    Formula: the output $z_n$ of each head of layer 0 becomes $z_n\, \bar r / r_n$ with
    $r_n = \sqrt{\mathbb{E}\|z_n\|^2}$ over random sequences and $\bar r$ its mean over positions.

    Choices: those of the recency of induction and of attention to random tokens. Rows are averaged
    with equal weight.

    Limits: the scaling does more than make norms flat. It also magnifies at late positions what all
    sequences have in common, it rescales the query's own position, and it touches layer 0 alone,
    while deeper induction heads read later layers too. A rise that vanishes because induction
    itself broke says nothing: look at ``attention``. Errors of changes take the two runs as
    independent; they share their sequences, so that the errors are rather too large.

    Source: the test that "Recency bias in an induction head" leaves open; it is ours.
    """

    name = "norm-cause"
    uses = ("later layers",)
    title = "Norms as they are, and flat"
    spoken = "what flat norms leave of the recency"
    params = NormCauseParams

    def settled(self, run: RunSpec, params: NormCauseParams) -> RunSpec:
        """Return the run of the random sequences.

        Raises:
            BadRequest: the pairs have no room for two rows.
        """
        rows = second_positions(params.length, params.first, params.candidates, run.start_token)
        if len(rows) < 2:
            raise BadRequest(
                "A rise needs two rows or more: ask for longer sequences, or fewer candidates."
            )
        longest = max(params.length, params.random_length)
        return random_run(run, longest, params.samples)

    def perform(
        self,
        subject: Subject,
        statistics: Mapping[str, StatisticsView],
        params: NormCauseParams,
        progress: Progress,
    ) -> Result:
        """Run all sequences twice."""
        from poskernel_core.experiments.norm_cause import norm_cause

        return norm_cause(subject, params, progress)
