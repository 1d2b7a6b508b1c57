"""Induction: which heads do it, and which of several candidates they prefer."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from poskernel_core.analyses.base import Progress, Result, Subject
from poskernel_core.analyses.random_tokens import (
    Sampled,
    SampleParams,
    Silenced,
    Switches,
    random_run,
)
from poskernel_core.config import RunSpec
from poskernel_core.layouts import MOST_CANDIDATES, pairs_layout, second_positions
from poskernel_core.views import StatisticsView

__all__ = [
    "InductionRecency",
    "InductionScores",
    "InductionScoresParams",
    "PairsParams",
    "RecencyParams",
    "RecencyPatterns",
    "RecencyPatternsParams",
]


class InductionScoresParams(SampleParams):
    """Parameters of the search for induction heads."""

    samples: int = Field(100, ge=2, le=1_000_000, description="random sequences averaged over")
    period: int = Field(
        24, ge=2, le=2048, description="random tokens, each sequence has them twice"
    )


class InductionScores(Sampled):
    r"""Every head's attention in a random sequence repeated once.

    * ``induction [layer, head]``: mean attention from each token of the second copy to the token
      after its earlier copy: the induction score.
    * ``duplicate [layer, head]``: mean attention to the earlier copy itself.
    * ``previous_mass [layer, head]``: mean attention to the token before.
    * ``loss [copy]``: mean loss of the tokens of the first and of the second copy.

    Formula: with $T$ random tokens twice, from position $s$ on (1 behind a start token, else 0),
    $\text{induction} = \mathbb{E}\, A(s+T+j,\; s+j+1)$ over $0 \le j < T$.

    Choices: tokens of one sequence all differ, so that each has one earlier copy.

    Limits: random tokens show the circuit, not how much text uses it. Errors are over sequences.

    Source: "Recency bias in an induction head", which takes L1H6 of attn-only-2l from its pattern;
    the score is that of Olsson et al., "In-context learning and induction heads".
    """

    name = "induction-scores"
    uses = ("later layers",)
    title = "Induction heads"
    spoken = "induction scores"
    params = InductionScoresParams

    def settled(self, run: RunSpec, params: InductionScoresParams) -> RunSpec:
        """Return the run of the random sequences."""
        return random_run(run, 2 * params.period + run.start_token, params.samples)

    def perform(
        self,
        subject: Subject,
        statistics: Mapping[str, StatisticsView],
        params: InductionScoresParams,
        progress: Progress,
    ) -> Result:
        """Run the sequences."""
        from poskernel_core.experiments.copies import induction_scores

        return induction_scores(subject, params, progress)


class PairsParams(Silenced):
    """Parameters of sequences with several candidates."""

    samples: int = Field(2000, ge=2, le=1_000_000, description="random sequences for each row")
    length: int = Field(13, ge=5, le=512, description="tokens per sequence")
    first: int = Field(2, ge=0, le=500, description="position of the first [A]")
    candidates: int = Field(
        2, ge=1, le=MOST_CANDIDATES, description="tokens that follow an [A]: [B], [C], ..."
    )


class RecencyParams(PairsParams, Switches):
    """Parameters of the recency of induction."""


class InductionRecency(Sampled):
    r"""Which of several candidates a model predicts: ``[A][B] ... [A][C] ... [A]``.

    The last pair moves from row to row; the others stay at the
    beginning, one behind the other.

    * ``probability [second, pair]``: of each candidate after the last ``[A]``, against the position
      of the last pair's ``[A]``; ``probability_other [second]``: mean over the random tokens.
    * ``advantage [second]``: probability of the last candidate less that of the first, paired.
    * ``probability_rise``: probability of the last candidate in the last row less in the first.
    * ``last_row [second, layer, head, key]``: attention of the last ``[A]``.
    * ``candidate_attention [second, layer, head, pair]``: its attention to each candidate;
      ``attention_advantage [second, layer, head]``: last candidate less first.
    * ``attention_rise [layer, head]``: attention to the last candidate in the last row less in the
      first: above zero where the head prefers recent tokens.
    * ``norm [head, pos]``, only where norms are flattened: layer 0's norms before that.
    * ``role [second, pos]``: what stands where.

    Formula: $P(t) = \mathbb{E}\,\mathrm{softmax}(\text{logits of the last position})_t$ over random
    sequences.

    Choices: tokens of one sequence all differ. Rows have sequences of their own, so that their
    errors are independent. One row has no rise (NaN), one candidate no advantage (0). Flattening
    multiplies the output $z_n$ of each head of layer 0 by $\bar r / r_n$ with
    $r_n = \sqrt{\mathbb{E}\|z_n\|^2}$ measured on 500 random sequences of the same length under the
    same other switches, and $\bar r$ the mean of $r_n$; a start token's own output is left as it
    is. The error of the measured norms is not in ours.

    Limits: induction on random tokens is weaker than on text, so probabilities are small.

    Source: "Recency bias in an induction head", figures 1 to 3; more than two candidates and the
    causal test by flattening are ours.
    """

    name = "induction-recency"
    uses = ("later layers",)
    title = "Recency of induction"
    spoken = "the recency of induction"
    params = RecencyParams

    def settled(self, run: RunSpec, params: RecencyParams) -> RunSpec:
        """Return the run of the random sequences.

        Raises:
            BadRequest: the pairs have no room.
        """
        second_positions(params.length, params.first, params.candidates, run.start_token)
        return random_run(run, params.length, params.samples)

    def perform(
        self,
        subject: Subject,
        statistics: Mapping[str, StatisticsView],
        params: RecencyParams,
        progress: Progress,
    ) -> Result:
        """Run the sequences of every row."""
        from poskernel_core.experiments.recency import induction_recency

        return induction_recency(subject, params, progress)


class RecencyPatternsParams(RecencyParams):
    """Parameters of one row."""

    second: int = Field(10, ge=0, le=510, description="position of the last pair's [A]")


class RecencyPatterns(Sampled):
    r"""The attention of every head in one row of the table of sequences.

    * ``pattern [layer, head, query, key]``: mean attention over random sequences.
    * ``role [pos]``: what stands where.

    Formula: $\bar A(n,i) = \mathbb{E}\, A(n,i)$.

    Choices: those of the recency of induction; the sequences are the same as there.

    Limits: a mean over sequences hides whether a head attends so in each of them.

    Source: "Recency bias in an induction head", figure 2.
    """

    name = "recency-patterns"
    uses = ("later layers",)
    title = "Attention in one row"
    spoken = "the attention in one row"
    params = RecencyPatternsParams

    def settled(self, run: RunSpec, params: RecencyPatternsParams) -> RunSpec:
        """Return the run of the random sequences.

        Raises:
            BadRequest: the pairs have no room.
        """
        pairs_layout(params.length, params.first, params.second, params.candidates, run.start_token)
        return random_run(run, params.length, params.samples)

    def perform(
        self,
        subject: Subject,
        statistics: Mapping[str, StatisticsView],
        params: RecencyPatternsParams,
        progress: Progress,
    ) -> Result:
        """Run the sequences of the row."""
        from poskernel_core.experiments.recency import recency_patterns

        return recency_patterns(subject, params, progress)
