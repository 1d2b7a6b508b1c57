"""Attention entropy: how widely a head's attention is spread within each window."""

from poskernel_core.analyses.base import Analysis, Progress, SkipParams, Statistics
from poskernel_core.analyses.head_measure import grid_measures
from poskernel_core.common.result import Result, estimates
from poskernel_core.common.views import stacked


class AttentionEntropy(Analysis[SkipParams]):
    r"""The entropy of every head's attention at every recorded position.

    Formula: $H(n) = \mathbb{E}_\text{text}\!\left[-\sum_{i \ge \text{skip}} \hat A(n,i) \ln
    \hat A(n,i)\right]$ with $\hat A(n,i) = A(n,i) / \sum_{j \ge \text{skip}} A(n,j)$.

    Choices: each window's row is renormalised and its entropy taken before the mean over windows;
    the entropy of the mean row would be larger. The first ``skip`` keys are left out, as for
    kernels.

    Limits: a head that looks at a single key, but a different one in each window, has entropy 0 and
    a broad kernel: entropy shows how sharp attention is, not whether position is the cause.

    Source: "Positional kernels of attention heads" calls heads broad or sharp by their kernels;
    the entropy of the observed attention is ours.
    """

    name = "entropy"
    title = "Attention entropy"
    noun_phrase = "the attention entropy"
    error_counts = "windows"
    values = estimates(
        "entropy [layer head query], nats: mean over windows; NaN where no key is left"
    )
    narrow_below = (("entropy", 200),)
    measures = grid_measures("""
        attention entropy [entropy, linear], nats: Dark: in each window the head looks at few keys;
            bright: at many.
    """)
    precomputed = "always"
    continued = "entropy"
    gathers = ("entropy",)

    def compute(self, statistics: Statistics, params: SkipParams, progress: Progress) -> Result:
        view = statistics["main"]
        progress(1, 1)
        return self.result(params, {"entropy": stacked(view, "entropy")[..., params.skip]})
