"""Sources of position: which earlier parts of the model write the position that a head reads."""

from pydantic import Field

from poskernel_core.analyses.base import Experiment, SkipParams
from poskernel_core.analyses.head_measure import grid_measures
from poskernel_core.common.result import Value, estimates, outputs

KINDS = {
    "token_share": "token embedding",
    "wpos_share": "positional embedding",
    "heads_share": "earlier heads",
    "mlps_share": "earlier MLPs",
    "constant_share": "biases and constant",
    "bias_share": "ALiBi's bias",
}
"""The kinds of components, by the value that is the sum of their shares."""

OFFSETS = 48
"""Offsets of the map of one head's components."""


def certainty(axes: str) -> tuple[Value, ...]:
    """Declare what decides whether shares are given."""
    return (
        *outputs(
            f"noise [{axes}], share of Var(a): share of the positional score's variance that is "
            "sampling variance of the mean keys, because texts are few; above 0.5 there are no "
            "shares",
            bounds=(0, 1),
        ),
        *estimates(f"""
            position_share [{axes}], share of variance: score variance explained by position,
                without noise; below 0.05 there are no shares
        """),
    )


class PositionSourcesParams(SkipParams):
    """Parameters of the sources of position."""

    first_windows: int = Field(
        30, ge=10, le=10_000, description="first windows of text, whose components are averaged"
    )


class HeadSourcesParams(PositionSourcesParams):
    """Parameters of the sources of one head."""

    head: str = Field(description="the head, such as L0H3")


class _Sources(Experiment[PositionSourcesParams]):
    """An experiment that splits mean keys into components."""

    error_counts = "windows"
    texts = outputs("source [component], name: the name of each component")
    gathers = ("keys",)
    long = True


class PositionSources(_Sources):
    r"""Which earlier parts of the model write the positional score of every head.

    Formula: the stream before a layer is a sum of components $x_c$: the embeddings, the output of
    each earlier head and of each earlier MLP, and output biases. Through the layer's norm and
    $W_K$, each gives a part of the mean key, $m_{c,i} = R_i W_K\,(\gamma \odot P\,
    \mathbb{E}_\text{text}[x_{c,i} / \sigma_i])$, where $P$ subtracts the mean over dimensions
    (LayerNorm only), $\sigma_i$ is the scale of the text's own norm, and $R_i$ is the rotation.
    Together with the constant $R_i (W_K \beta + b_K)$ they add up to $m_i$, and so the scores
    $a_c(n,i) = \text{scale}\; q_n \cdot m_{c,i}$ add up to the positional score $a(n,i)$. The share
    of a component is $\mathbb{E}_n \mathrm{Cov}_K(a_c, a) \,/\, \mathbb{E}_n \mathrm{Var}_K(a)$.
    Each visible key $i \ge \text{skip}$ has the weight $K(n,i)$ of the positional kernel. Shares
    add up to 1; a negative one works against the others.

    Choices: the mean over $n$ is over the recorded query positions and the read windows; the kernel
    is that of the mean keys of all windows. ``equal_share`` gives all visible keys the same weight.
    It describes the broad trend over all keys more than the keys that are attended to. Scales of
    norms behind a block, and of normed keys, are the text's own too. ALiBi's bias is a component. A
    soft cap is left out. Noise of mean keys would count as position, so $a_c$, $a$ and $q_n$ are
    always from three different groups of texts. ``noise`` compares this $\mathbb{E}_n
    \mathrm{Var}_K(a)$ with that of the mean keys of all groups; it is no estimate and has no
    error. There are no shares (NaN) where noise is more than half of it, or where
    ``position_share`` is below 0.05.

    Limits: components are direct writers, not origins. A head that reads an MLP may read what the
    MLP made of the positional embedding. All this is about keys; queries split in the same way. A
    share is not the effect of removing a component. Models with compressed or borrowed keys are
    refused.

    Source: ours; direct contributions to scores as in "A mathematical framework for transformer
    circuits" (Elhage et al. 2021), mean keys as in "Positional kernels of attention heads".
    """

    name = "position-sources"
    title = "Sources of position"
    noun_phrase = "where all heads get their position from"
    params = PositionSourcesParams
    values = (
        *estimates("""
            share [layer head component], share of Var(a): share of each component in the positional
                score, keys weighted by the kernel; NaN for components at or above the layer
            equal_share [layer head component], share of Var(a): the same, all visible keys weighted
                alike
            token_share wpos_share heads_share mlps_share constant_share bias_share [layer head],
                share of Var(a): sums of ``share`` over the token embedding, the positional
                embedding, earlier heads, earlier MLPs, output biases and constant, and ALiBi's bias
        """),
        *certainty("layer head"),
    )
    measures = (
        *grid_measures(
            "position from W_pos [wpos_share, unit], share of Var(a): Bright: the head reads "
            "position from the positional embedding itself.",
            only=("learned",),
        ),
        *grid_measures("""
            position from earlier heads [heads_share, unit], share of Var(a): Bright: the head reads
                position from what earlier heads wrote.
            position from earlier MLPs [mlps_share, unit], share of Var(a): Bright: the head reads
                position from what earlier MLPs wrote.
        """),
    )
    precomputed = "experiments"
    runs = "all_heads"


class HeadSources(_Sources):
    r"""Which earlier parts of the model write the positional score of one head, and where.

    Formula: components, $a_c$ and shares are those of all heads' sources of position. The score
    of a component at offset $k$ is $\mathbb{E}[a_c(n, n-k)]$, less its mean over the keys, weighted
    by the mean kernel (the softmax ignores a constant). The effect of a component is
    $\mathrm{TV}(K, K')$ with $K'$ the kernel without its part of the keys. In rotary models
    position comes from turning: each component's key before rotation splits into its mean over $i
    \ge \text{skip}$, which is then turned, and the rest. ``turned_share`` is the share of the
    first, which supplies the constant key; ``place_share`` that of the second, which knows its
    place. They add up to ``share``.

    Choices: as for all heads. Scores are given for offsets up to 47, each from queries of one
    group of texts and mean keys of the others. Effects use the mean keys of all groups, and are
    means over all queries. Without rotation the first part is the same for all keys, and its share
    is 0.

    Limits: effects do not add up: two components may each be able to replace the other. With few
    texts, noise makes effects too large before they are corrected. As they are means of distances,
    signs of mean rows do not correct them (cross-fit): the jackknife's bias is taken off, and twice
    that at the lower end of the interval.

    Source: ours; mean keys as in "Positional kernels of attention heads".
    """

    name = "head-position-sources"
    title = "Sources of one head's position"
    noun_phrase = "where the head gets its position from"
    precomputed = "shipped"
    params: type[PositionSourcesParams] = HeadSourcesParams
    values = (
        *estimates("""
            share [component], share of Var(a): share of each component, keys weighted by the kernel
            equal_share [component], share of Var(a): the same, all visible keys weighted alike
            turned_share place_share [component], share of Var(a): the two parts of ``share``: of
                the component's mean key, turned, and of the rest
        """),
        *estimates(
            "effect [component], total variation distance: between the kernel and the kernel "
            "without the component",
            kind="distance",
            bounds=(0, 1),
        ),
        *estimates("""
            score [query component offset], nats: what the component adds to the score of the key at
                the offset, less its mean over the kernel
        """),
        *certainty(""),
    )
    runs = "one_head"
