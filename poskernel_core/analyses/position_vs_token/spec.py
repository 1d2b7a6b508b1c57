"""Position against token: a head's scores and patterns with one of the two removed."""

from pydantic import Field

from poskernel_core.analyses.random_tokens.params import Sampled, SampleParams
from poskernel_core.common.result import estimates, outputs
from poskernel_core.common.specs import RunSpec

CONDITIONS = ("both", "position only", "token only")
"""The three runs, in the order of the axis ``condition``."""


class PositionVsTokenParams(SampleParams):
    """Parameters of the three runs."""

    length: int = Field(24, ge=3, le=4096, description="tokens per sequence")


class PositionVsToken(Sampled[PositionVsTokenParams]):
    r"""Mean scores and patterns of random sequences in three runs.

    Runs are "both", "position only" (all token embeddings zero, the start token's as well) and
    "token only" (all positional embeddings zero), along the axis ``condition``. Everything is
    computed anew in each run, norms included. The norms rescale a lone ``W_pos``, so its scores are
    large.

    Formula: $\bar s(n,i) = \mathbb{E}\, s(n,i)$ and $\bar A(n,i) = \mathbb{E}\, A(n,i)$ over random
    sequences; $P(k) = \mathbb{E}_n \bar A(n, n-k)$ over $n - k \ge 1$.

    Choices: tokens of one sequence all differ; special tokens are never drawn. In rotary models
    nothing can be zeroed. There, "position only" replaces content by its mean: scores are
    $\text{scale}\; \bar q_n \cdot \bar k_i$, of mean queries and mean keys in the stream of real
    runs, and the pattern is their softmax. A start token keeps its content, which is the same in
    all sequences. "Token only" rotates every query and key as at position 0.

    Limits: no model was trained on positions without tokens. Errors are over sequences. "Position
    only" is the same for all sequences (error 0); in rotary models its error is a jackknife over
    ten groups of sequences.

    Source: "The previous token head and the look-back-two head", figures 1 to 4 and 6 to 8.
    """

    name = "position-vs-token"
    title = "Position against token"
    noun_phrase = "attention with positions only and with tokens only"
    values = outputs("""
        ± pattern [condition layer head query key], share of attention: mean attention
        ± score [condition layer head query key], score (nats): mean score; NaN for keys that are
            not visible
        ± profile [condition layer head offset], share of attention: mean of $A(n,n-k)$ over $n$,
            position 0 left out as query and as key; NaN for the largest offset, which has no pair
            left
        largest_offset [condition layer head], tokens: the $k$ with the largest $P(k)$ up to half of
            the length: a head that looks $k$ back
        % largest_mass [condition layer head], share of attention: that $P(k)$
        % first_mass [condition layer head], share of attention: attention from position 1 to
            position 0, to be compared with $P(1)$: the exception of position 0
    """)
    texts = outputs("conditions [condition], name: the three runs")
    precomputed = "experiments"
    runs = "position_vs_token"


class PositionZeroParams(SampleParams):
    """Parameters of the test of position 0."""

    length: int = Field(
        11, ge=6, le=4096, description="tokens per sequence, the start token included"
    )


class PositionZero(Sampled[PositionZeroParams]):
    r"""Induction with the first ``[A]`` at position 0 and at position 1.

    Three cases along the axis ``case``: start token, then ``[A][B] ... [A]``; the same without the
    start token, so that ``[A]`` is at position 0; a random token in place of the start token.
    The post has the first two; the third separates the effect of the missing start token from that
    of position 0.

    Formula: $P([B])$ from the softmax of the last position's logits, mean over sequences.

    Choices: tokens of one sequence all differ. A model without a start token has no first case
    (NaN).

    Limits: a model trained with a start token has never seen the second and third case.

    Source: "The previous token head and the look-back-two head", figure 5.
    """

    name = "position-zero"
    uses = ("predictions",)
    title = "Induction from position 0"
    noun_phrase = "induction from position 0"
    values = estimates("""
        % probability [case], probability: of ``[B]`` after the last ``[A]``
        % probability_other [case], probability: mean over the random tokens of the sequence
        last_row [case layer head key], share of attention: attention of the last ``[A]``; ``[B]``
            is key 2 in all cases, because the keys of the second case, which is one token shorter,
            are moved by one and begin with NaN
        % candidate_attention [case layer head], share of attention: its attention to ``[B]``
    """)
    texts = outputs("cases [case], name: the three cases")
    precomputed = "experiments"
    ignores = Sampled.ignores | {"start_token"}
    runs = "position_zero"

    def with_params(self, run: RunSpec, params: PositionZeroParams) -> RunSpec:
        """Return the run of the random sequences; each case sets whether it has a start token."""
        return super().with_params(run, params).model_copy(update={"start_token": False})
