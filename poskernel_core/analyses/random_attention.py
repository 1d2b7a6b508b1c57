"""How attention to random tokens depends on position, and what the norm has to do with it."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from poskernel_core.analyses.base import Progress, Result, Subject
from poskernel_core.analyses.random_tokens import Sampled, Switches, random_run
from poskernel_core.config import RunSpec
from poskernel_core.views import StatisticsView

__all__ = ["RandomAttention", "RandomAttentionParams"]


class RandomAttentionParams(Switches):
    """Parameters of the intrinsic dependence on position."""

    length: int = Field(48, ge=4, le=4096, description="tokens per sequence")
    trend_from: int = Field(2, ge=0, le=64, description="first key that trends are fitted to")


class RandomAttention(Sampled):
    r"""Intrinsic dependence on position: mean attention over random sequences.

    Nothing in such a sequence calls for attention, so what is left is
    what the head does by position.

    * ``pattern [layer, head, query, key]``: mean attention.
    * ``slope [layer, head, query]``: least-squares slope of a row over its keys, share of
      attention per token; above zero where recent tokens get more.
    * ``rank_correlation [layer, head, query]``: Spearman's, of the mean row with the key's
      position; ``p_value``: its two-sided p-value, as if keys were independent.
    * ``norm [head, pos]``: root mean square norm of the output ``z`` of each head of layer 0,
      before the output projection and behind the switches (flattened norms are flat).
    * ``norm_exponent [head]``: exponent of its power law, fitted by least squares to
      ``log norm`` against the logarithm of the number of visible tokens.

    Formula: uniform attention over independent values of mean zero gives
    $\mathbb{E}\|z_n\|^2 = \mathbb{E}\|v\|^2 / (n+1)$, so that $r_n \propto (n+1)^{-1/2}$: exponent
    $-1/2$.

    Choices: trends leave out the first keys (``trend_from``), which take what a head does not use,
    and the query itself, which is not a token seen before; they need three keys or more. The
    exponent is fitted from position 1 on. Silenced heads have no exponent (NaN).

    Limits: neighbouring keys are not independent, so the p-value is too small. Errors of the slope
    are over sequences, of the exponent a jackknife over ten groups of sequences.

    Source: "Recency bias in an induction head", figures 4 to 6 and "Cause of the intrinsic
    positional dependence"; fitted trends and exponents are ours.
    """

    name = "random-attention"
    title = "Attention to random tokens"
    spoken = "attention to random tokens"
    params = RandomAttentionParams

    def settled(self, run: RunSpec, params: RandomAttentionParams) -> RunSpec:
        """Return the run of the random sequences."""
        return random_run(run, params.length, params.samples)

    def perform(
        self,
        subject: Subject,
        statistics: Mapping[str, StatisticsView],
        params: RandomAttentionParams,
        progress: Progress,
    ) -> Result:
        """Run the sequences."""
        from poskernel_core.experiments.random_rows import random_attention

        return random_attention(subject, params, progress)
