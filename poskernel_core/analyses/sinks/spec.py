"""Attention sinks: how much attention the first keys of a text take."""

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import Analysis, Params, Progress, Statistics
from poskernel_core.analyses.head_measure import grid_measures
from poskernel_core.common.result import Result, outputs
from poskernel_core.common.views import stacked


class SinkParams(Params):
    """Parameters of the attention sinks."""

    threshold: float = Field(0.3, gt=0, lt=1, description="attention above which a head has a sink")


class AttentionSinks(Analysis[SinkParams]):
    r"""How much attention every head pays to each of the first eight keys.

    Formula: $\alpha_i = \mathbb{E}_\text{text}\, \mathrm{mean}_{n \ge i}\, A(n,i)$. A head has
    a sink where $\alpha_0$ is above ``threshold``; the sink rate is the share of such heads. A
    learned sink is an extra logit in the softmax, which takes attention and writes nothing. Its
    mass is what the keys do not receive, $1 - \sum_i A(n,i)$.

    Choices: ``skip`` does not apply, because these numbers describe the first keys. A key that a
    sliding window hides receives nothing. The mass of a learned sink is a mean over all
    queries; in models without one it is zero up to rounding. The sink rate counts heads by their
    mean over texts. The paper's code counts the heads of each text, of 64 tokens, and takes the
    mean of these rates, so a head near the threshold counts in part.

    Limits: attention to the first key does not show what is read there. A sink may be a way of
    attending to nothing.

    Source: sink rate and threshold as in "When attention sink emerges in language models"
    (2410.10781); learned sinks as in gpt-oss.
    """

    name = "sinks"
    title = "Attention sinks"
    noun_phrase = "the attention sinks"
    error_counts = "windows"
    values = outputs("""
        ± alpha [layer head key], share of attention: mean attention to each of the first keys
        % sink [layer head], share of attention: mean attention to the first key
        % learned_sink [layer head], share of attention: mass on a learned sink, where the model has
            one
        sink_rate, share of heads: share of heads that have a sink
    """)
    measures = (
        *grid_measures("""
            attention sink [sink, unit], share of attention: Bright: the head's attention rests on
                the first key.
        """),
        *grid_measures(
            "mass on a learned sink [learned_sink, unit], share of attention: Bright: the head's "
            "attention rests on the logit that the model has learned for it.",
            only=("gpt_oss",),
        ),
    )
    precomputed = "always"
    continued = "sinks"
    gathers = ("sinks",)

    def compute(self, statistics: Statistics, params: SinkParams, progress: Progress) -> Result:
        view = statistics["main"]
        alpha = stacked(view, "alpha")
        kept = np.delete(alpha[..., 0], list(view.header.reasons), axis=0)
        progress(1, 1)
        return self.result(
            params,
            {
                "alpha": alpha,
                "sink": alpha[..., 0],
                "learned_sink": stacked(view, "learned"),
                "sink_rate": np.asarray((kept > params.threshold).mean()),
            },
        )
