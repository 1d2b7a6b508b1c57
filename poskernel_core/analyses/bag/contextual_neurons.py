"""Contextual neurons: those of layer 0 that the bag of tokens drives."""

import numpy as np
from pydantic import Field

from poskernel_core.analyses.bag.params import BagExperiment, Kernel, ListedParams
from poskernel_core.common.result import Result, outputs, sizes


class ContextualNeuronsParams(ListedParams):
    """Parameters of the ranking of neurons."""

    kernel: Kernel = "own"
    top_k: int = Field(10, ge=1, le=100, description="tokens listed at either end")
    n_positions: int = Field(32, ge=2, le=256, description="positions at which the bag is judged")


class ContextualNeurons(BagExperiment[ContextualNeuronsParams]):
    r"""Layer 0's bag of tokens, how well it predicts outputs, and the neurons that it drives.

    Formula: $e(t) = \sum_{h \in C} \frac{w_h(t)}{\bar Z_h}\, \mathrm{norm}(E[t])\, W_V^h W_O^h$
    with content weights $w_h(t)$ for the destination token and the median denominator $\bar Z_h$
    over windows. The heads' joint output at $n$ is close to $\sum_i K(n,i)\, e(t_i)$. What token
    $t$ contributes to a neuron's pre-activation is $e(t)$, passed through the second norm, times
    the neuron's input weights. $R^2$ is one minus the ratio of the squared error to the variance
    about the mean. For the joint output that mean is over windows, at each position; for the
    centred $R^2$ predictions are centred as well. The neuron's prediction replaces contextual heads
    by the bag, lets other heads attend to the current token alone, and takes direct and positional
    paths exactly.

    Choices: norms are taken as linear. The first norm's scale is each token's own (mean over four
    positions), because it is a function of the token and may vary much among tokens. The second
    norm's scale is that of the predicted stream. With ``scale`` mean, each norm has one scale for
    all tokens, as in the post. Contributions of tokens go through the second norm with its mean
    scale whatever ``scale`` is, because a token has no stream of its own. What a start token writes
    is exact. Kernels are those of the destination token, with nothing skipped. A content weight is
    the exponential of the token's mean content score at the four positions at which the heads' mean
    kernel, without a start token, passes 1/8, 3/8, 5/8 and 7/8 of its mass. Denominators are those
    at the query position. In gated MLPs (Llama, Qwen, Mistral) the pre-activation is the gate's. If
    no heads are named, the contextual heads of layer 0 are found as ``contextual-heads`` finds
    them, on the windows used here.

    Limits: the heads' outputs share a large constant, so a cosine near 1 means little; the centred
    $R^2$ shows what the bag knows about the text. Layer 0 only. The main error comes from using the
    destination token's kernel for every current token. The vocabulary excludes special tokens, and
    tokens rarer in the run's windows than ``min_count``, because barely trained embeddings have
    extreme contributions. Errors are over groups of windows; the bag and the mean keys are taken
    as exact.

    Source: "Contextual attention heads in the first layer of GPT-2"; scales by token, shares and
    rankings are ours.
    """

    name = "contextual-neurons"
    title = "Contextual neurons"
    noun_phrase = "what contextual heads write to neurons"
    error_counts = "windows"
    values = (
        *sizes("""
            drive [neuron], pre-activation: standard deviation, over windows and positions, of what
                the bag adds to the neuron's pre-activation
        """),
        *outputs("""
            ± drive_share [neuron], share of variance: variance that the bag adds, over that of the
                true pre-activation
            ± r2 [neuron], share of variance: predicted against true pre-activation, mostly the
                exact direct path; 1 is best
            % sign_agreement [neuron], share of positions: predicted against true pre-activation,
                mostly the exact direct path; 1 is best
            ± r2_of_bag [neuron], share of variance: the bag's part against what all other parts
                leave over; 1 is best
            % fires [neuron], share of positions: share of positions with positive true
                pre-activation
            top bottom [neuron rank], token: tokens with the largest and the smallest contribution
            top_contribution bottom_contribution [neuron rank], pre-activation: contributions of
                ``top`` and ``bottom``
            contribution_mean contribution_std [neuron], pre-activation: mean and standard deviation
                of the contributions over the vocabulary
            ± bag_r2 bag_centred_r2 [variant query], share of variance: the heads' joint output,
                predicted against true; 1 is best
            ± bag_cosine [variant query], cosine: the heads' joint output, predicted against true; 1
                is best
            kernel [key], share of attention: the heads' mean kernel at the query position
            denominator [chosen], weight: median denominator of each contextual head
            norm_scale [norm percentile], standard deviation: true scales of the two norms on the
                windows, the standard deviations that they divide by
        """),
    )
    texts = outputs("""
        top_words bottom_words [neuron rank], token: the tokens of ``top``, ``bottom``
        heads [chosen], name: the contextual heads
        variants [variant], name: the kernels and scales that are tried
        strongest [line], sentence: both ends of the neurons that the bag drives most
    """)
    precomputed = "experiments"
    long = True
    runs = "neurons:contextual_neurons"


def centred_at_best(result: Result) -> float:
    """Return the best variant's centred R², a median over positions; NaN if none is known."""
    rows = (row[np.isfinite(row)] for row in result.values["bag_centred_r2"])
    return max((float(np.median(row)) for row in rows if row.size), default=float("nan"))
