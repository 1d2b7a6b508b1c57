"""Contextual neurons: those of layer 0 that the bag of tokens drives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from poskernel_core.analyses.bag_params import BagExperiment, ListedParams
from poskernel_core.analyses.base import Progress, Result, Subject
from poskernel_core.views import StatisticsView

__all__ = ["ContextualNeurons", "ContextualNeuronsParams"]


class ContextualNeuronsParams(ListedParams):
    """Parameters of the ranking of neurons."""

    kernel: Literal["own", "common"] = Field(
        "own", description="heads average with their own kernels, or all with their mean kernel"
    )
    listed: int = Field(10, ge=1, le=100, description="tokens listed at either end")
    places: int = Field(32, ge=2, le=256, description="positions at which the bag is judged")


class ContextualNeurons(BagExperiment):
    r"""Layer 0's bag of tokens, how well it predicts, and the neurons that it drives.

    * ``drive [neuron]``: standard deviation, over texts and positions, of what the bag adds to the
      neuron's pre-activation; ``drive_share``: its variance over that of the true pre-activation.
    * ``r2``, ``sign_agreement [neuron]``: predicted against true pre-activation. Mostly the exact
      direct path: ``r2_of_bag [neuron]`` is the bag's part against what all other parts leave over.
    * ``fires [neuron]``: share of positions with positive true pre-activation.
    * ``top``, ``bottom [neuron, rank]``: tokens with the largest and the smallest contribution,
      ``top_contribution``, ``bottom_contribution`` theirs; ``contribution_mean``,
      ``contribution_std [neuron]`` over the vocabulary.
    * ``bag_cosine``, ``bag_r2``, ``bag_centred_r2 [variant, query]``: the heads' joint output,
      predicted against true.
    * ``kernel [key]``: the heads' mean kernel at the query position.
    * ``norm_scale [norm, percentile]``: true scales of the two norms on the texts, the standard
      deviations that they divide by.
    * ``denominator [chosen]``: median denominator of each contextual head.

    Formula: $e(t) = \sum_{h \in C} \frac{w_h(t)}{\bar Z_h}\, \mathrm{norm}(E[t])\, W_V^h W_O^h$
    with content weights $w_h(t)$ for the destination token and the median denominator $\bar Z_h$
    over texts. The heads' joint output at $n$ is close to $\sum_i K(n,i)\, e(t_i)$; token $t$ adds
    $e(t)$ through the second norm to the input weights of a neuron. $R^2$ is one less the squared
    error over the variance about the mean; for the joint output that mean is over texts at each
    position, and in the centred one predictions are centred as well. The neuron's prediction
    takes contextual heads by the bag, other heads as attending to the current token alone, direct
    and positional paths exactly.

    Choices: norms are linear. The first norm's scale is each token's own (mean over four
    positions), because it is a function of the token and may vary much among tokens; with ``scale``
    mean it is one for all, as in the post. A start token writes what it really writes. Kernels are
    those of the destination token, with nothing skipped. Content weights are means over four
    positions that share the kernel's mass equally. Denominators are those at the query position.
    Gated MLPs (Llama, Qwen, Mistral): the pre-activation is the gate's. Contextual heads, where
    none are named, are found in layer 0 as ``contextual-heads`` finds them, on the texts used here.

    Limits: the heads' outputs share a large constant, so that a cosine near 1 says little; the
    centred $R^2$ tells what the bag knows of the text. Layer 0 only; the current token is not the
    destination token whose kernel is used, which is the main error. Special tokens are left out of
    the vocabulary, and those rarer in the run's texts than ``fewest``, as embeddings that were
    hardly trained have wild contributions. Errors are jackknives over ten groups of texts.

    Source: "Contextual attention heads in the first layer of GPT-2"; scales by token, shares and
    rankings are ours.
    """

    name = "contextual-neurons"
    title = "Contextual neurons"
    spoken = "what contextual heads write to neurons"
    params = ContextualNeuronsParams
    long = True

    def perform(
        self,
        subject: Subject,
        statistics: Mapping[str, StatisticsView],
        params: ContextualNeuronsParams,
        progress: Progress,
    ) -> Result:
        """Build the bag, hold it against the model, and multiply it with all neurons."""
        from poskernel_core.experiments.neurons import contextual_neurons

        return contextual_neurons(subject, statistics["main"], params, progress)
