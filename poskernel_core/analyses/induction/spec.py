"""Induction: which heads do it, and which of several candidates they prefer."""

from typing import Any

from pydantic import Field

from poskernel_core.analyses.head_measure import grid_measures
from poskernel_core.analyses.random_tokens.params import (
    CLEAR_SAMPLES,
    Ablations,
    NormAblations,
    Sampled,
    SampleParams,
    random_run,
)
from poskernel_core.common.result import estimates, outputs
from poskernel_core.common.specs import RunSpec
from poskernel_core.data.layouts import MAX_CANDIDATES, ROLES, pairs_layout, second_positions
from poskernel_core.models.geometry import Geometry


class InductionScoresParams(SampleParams):
    """Parameters of the search for induction heads."""

    samples: int = Field(100, ge=2, le=1_000_000, description="random sequences averaged over")
    period: int = Field(24, ge=2, le=2048, description="random tokens, twice in each sequence")


class InductionScores(Sampled[InductionScoresParams]):
    r"""Every head's attention in a random sequence repeated once.

    Formula: with $T$ random tokens twice, from position $s$ on (1 after a start token, else 0),
    $\text{induction} = \mathbb{E}\, A(s+T+j,\; s+j+1)$ over $0 \le j < T$.

    Choices: the tokens of a sequence all differ, so that each has one earlier duplicate.

    Limits: random tokens show the circuit, not how much it is used in text. Errors are over
    sequences.

    Source: "Recency bias in an induction head", which identifies L1H6 of attn-only-2l by its
    pattern; the score is that of Olsson et al., "In-context learning and induction heads".
    """

    name = "induction-scores"
    uses = ("later layers",)
    title = "Induction heads"
    noun_phrase = "induction scores"
    values = estimates("""
        % induction [layer head], share of attention: mean attention from each token of the second
            half to the token after its earlier duplicate: the induction score
        % previous_mass [layer head], share of attention: mean attention to the token before
        % duplicate [layer head], share of attention: mean attention to the earlier duplicate itself
        loss [copy], nats: mean loss of the tokens of the first and of the second half
    """)
    measures = grid_measures("""
        induction score [induction, linear], share of attention: Bright: the head attends to what
            followed the current token's earlier duplicate.
    """)
    continued = "induction"
    precomputed = "experiments"
    runs = "induction_scores"

    def default_params(self, run: RunSpec, geometry: Geometry) -> dict[str, Any]:
        return {"period": min(24, (geometry.n_ctx - 1) // 2)}

    def with_params(self, run: RunSpec, params: InductionScoresParams) -> RunSpec:
        return random_run(run, 2 * params.period + run.start_token, params.samples)


class PairsParams(Ablations):
    """Parameters of sequences with several candidates."""

    samples: int = Field(
        CLEAR_SAMPLES, ge=2, le=1_000_000, description="random sequences for each row"
    )
    length: int = Field(13, ge=5, le=512, description="tokens per sequence")
    first: int = Field(2, ge=0, le=500, description="position of the first [A]")
    candidates: int = Field(
        2, ge=1, le=MAX_CANDIDATES, description="tokens that follow an [A]: [B], [C], ..."
    )


class RecencyParams(PairsParams, NormAblations):
    """Parameters of the recency of induction."""


class InductionRecency(Sampled[RecencyParams]):
    r"""Which of several candidates a model predicts: ``[A][B] ... [A][C] ... [A]``.

    The last pair moves from row to row; the others stay at the beginning, one after another.

    Formula: $P(t) = \mathbb{E}\,\mathrm{softmax}(\text{logits of the last position})_t$ over random
    sequences.

    Choices: the tokens of a sequence all differ; special tokens are never drawn. Each row has
    separate sequences, so errors are independent. With one row there is no rise (NaN), with one
    candidate no advantage (0). Equalising norms multiplies the output $z_n$ of each head of layer 0
    by $\bar r / r_n$ with $r_n = \sqrt{\mathbb{E}\|z_n\|^2}$ measured on 500 random sequences of
    the same length, under the same other ablations, and $\bar r$ the mean of $r_n$; the start
    token's output is unchanged. Our errors leave out the error of the measured norms.

    Limits: induction on random tokens is weaker than on text, so probabilities are small.

    Source: "Recency bias in an induction head", figures 1 to 3; more than two candidates and the
    causal test by equalised norms are ours.
    """

    name = "induction-recency"
    uses = ("later layers",)
    title = "Recency of induction"
    noun_phrase = "the recency of induction"
    values = (
        *estimates("""
            % probability [second pair], probability: of each candidate after the last ``[A]``,
                against the position of the last pair's ``[A]``
            % probability_other [second], probability: mean over the random tokens
            advantage [second], probability: probability of the last candidate minus that of the
                first, paired
            probability_rise, probability: probability of the last candidate in the last row minus
                in the first
            last_row [second layer head key], share of attention: attention of the last ``[A]``
            % candidate_attention [second layer head pair], share of attention: attention of the
                last ``[A]`` to each candidate
            attention_advantage [second layer head], share of attention: attention to the last
                candidate minus attention to the first
            attention_rise [layer head], share of attention: attention to the last candidate in the
                last row minus in the first: above zero where the head prefers recent tokens
        """),
        *outputs("role [second pos], role: what stands where", labels=ROLES),
        *outputs(
            "norm [head_of_layer_0 pos], length of z: only where norms are equalised: layer 0's "
            "norms before equalising",
            optional=True,
        ),
    )
    texts = outputs("examples [second pos], token: the first sequence of every row")
    most = CLEAR_SAMPLES
    precomputed = "experiments"
    runs = "induction_recency"

    def with_params(self, run: RunSpec, params: RecencyParams) -> RunSpec:
        second_positions(params.length, params.first, params.candidates, run.start_token)
        return super().with_params(run, params)

    def tokens(self, run: RunSpec, params: RecencyParams) -> int:
        """Return the tokens of all rows."""
        rows = second_positions(params.length, params.first, params.candidates, run.start_token)
        return len(rows) * run.windows * run.context


class RecencyPatternsParams(RecencyParams):
    """Parameters of one row."""

    second: int = Field(10, ge=0, le=510, description="position of the last pair's [A]")


class RecencyPatterns(Sampled[RecencyPatternsParams]):
    r"""The attention of every head in one row of the table of sequences.

    Formula: $\bar A(n,i) = \mathbb{E}\, A(n,i)$.

    Choices: as for the recency of induction, with the same sequences.

    Limits: a mean over sequences does not show how much single sequences differ. Whether a head
    attends more to one key than to another is judged as of independent numbers, which is too sure
    where one key takes from the other.

    Source: "Recency bias in an induction head", figure 2.
    """

    name = "recency-patterns"
    uses = ("later layers",)
    title = "Attention in one row"
    noun_phrase = "the attention in one row"
    values = (
        *estimates("""
            pattern [layer head query key], share of attention: mean attention over random sequences
        """),
        *outputs("role [pos], role: what stands where", labels=ROLES),
    )
    most = CLEAR_SAMPLES
    precomputed = "experiments"
    runs = "recency_patterns"

    def default_params(self, run: RunSpec, geometry: Geometry) -> dict[str, Any]:
        return super().default_params(run, geometry) | {"second": min(10, geometry.n_ctx - 3)}

    def with_params(self, run: RunSpec, params: RecencyPatternsParams) -> RunSpec:
        pairs_layout(params.length, params.first, params.second, params.candidates, run.start_token)
        return super().with_params(run, params)
