"""Test whether the falling norms of layer 0 cause the recency of induction."""

from typing import Any

from pydantic import Field

from poskernel_core.analyses.induction.spec import PairsParams
from poskernel_core.analyses.random_tokens.params import Sampled, random_run
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import estimates, outputs
from poskernel_core.common.specs import RunSpec
from poskernel_core.data.layouts import second_positions
from poskernel_core.models.geometry import Geometry


class NormCauseParams(PairsParams):
    """Parameters of the causal test."""

    random_length: int = Field(48, ge=6, le=512, description="random tokens of the slope")
    trend_from: int = Field(2, ge=0, le=64, description="first key that trends are fitted to")


class NormCause(Sampled[NormCauseParams]):
    r"""Recency with the norms of layer 0's head outputs as they are, and equalised.

    Both runs use the same sequences. The axis ``norms`` has two entries: original norms, then
    equalised norms. A ``change`` is the equalised value minus the original value.

    Formula: the output $z_n$ of each head of layer 0 becomes $z_n\, \bar r / r_n$ with
    $r_n = \sqrt{\mathbb{E}\|z_n\|^2}$ over random sequences and $\bar r$ its mean over positions.

    Choices: the same as for the recency of induction and for attention to random tokens. Rows have
    equal weight. Errors are over sequences; the error of a change is that of the mean difference
    between each sequence's two runs.

    Limits: the scaling does more than equalise norms. At late positions it also magnifies what all
    sequences have in common, and it rescales the query's own position. It changes only layer 0, but
    deeper induction heads read later layers too. If the rise vanishes because induction itself
    broke, that proves nothing: look at ``attention``.

    Source: ours; "Recency bias in an induction head" leaves this test open.
    """

    name = "equalised-norms"
    uses = ("later layers",)
    title = "Equalised head-output norms"
    noun_phrase = "what equalised norms leave of the recency"
    values = estimates("""
        % probability [norms], probability: of the last candidate, mean over rows
        probability_advantage [norms], probability: last candidate minus first, mean over rows
        probability_rise [norms], probability: last candidate in the last row minus in the first
        % attention [norms layer head], share of attention: of the last ``[A]`` to all candidates
            together, mean over rows: whether the head still does induction
        attention_advantage attention_rise [norms layer head], share of attention: as for the
            probability
        slope [norms layer head], share of attention per token: of the last row on random tokens
        probability_change probability_advantage_change probability_rise_change, probability: with
            equalised norms minus with true ones
        attention_change attention_advantage_change attention_rise_change [layer head], share of
            attention: with equalised norms minus with true ones
        slope_change [layer head], share of attention per token: with equalised norms minus with
            true ones
    """)
    texts = outputs("conditions [norms], name: the two conditions")
    runs = "norm_cause"

    def default_params(self, run: RunSpec, geometry: Geometry) -> dict[str, Any]:
        return {}

    def with_params(self, run: RunSpec, params: NormCauseParams) -> RunSpec:
        rows = second_positions(params.length, params.first, params.candidates, run.start_token)
        if len(rows) < 2:
            raise BadRequest(
                "A rise needs two rows or more: ask for longer sequences, or fewer candidates."
            )
        longest = max(params.length, params.random_length)
        return random_run(run, longest, params.samples)

    def tokens(self, run: RunSpec, params: NormCauseParams) -> int:
        """Return how many tokens the model reads.

        They are those of all rows and of the sequences for the slope, counted twice (original and
        equalised norms).
        """
        rows = second_positions(params.length, params.first, params.candidates, run.start_token)
        return 2 * run.windows * (len(rows) * params.length + params.random_length)
