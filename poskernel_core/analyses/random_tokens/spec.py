"""How attention to random tokens depends on position, and the norms of layer 0's outputs."""

from pydantic import Field

from poskernel_core.analyses.random_tokens.params import (
    CLEAR_SAMPLES,
    RANDOM_TOKENS,
    NormAblations,
    Sampled,
)
from poskernel_core.common.result import outputs


class RandomAttentionParams(NormAblations):
    """Parameters of the intrinsic dependence on position."""

    length: int = Field(RANDOM_TOKENS, ge=4, le=4096, description="tokens per sequence")
    trend_from: int = Field(2, ge=0, le=64, description="first key that trends are fitted to")


class RandomAttention(Sampled[RandomAttentionParams]):
    r"""Intrinsic dependence on position: mean attention over random sequences.

    Random sequences have no content to attend to, so only the effect of position remains.

    Formula: the norm of the output $z_n$ is $r_n = \sqrt{\mathbb{E}\|z_n\|^2}$. Uniform attention
    over independent values of mean zero gives $\mathbb{E}\|z_n\|^2 = \mathbb{E}\|v\|^2 / (n+1)$, so
    $r_n \propto (n+1)^{-1/2}$, with exponent $-1/2$.

    Choices: trends leave out the first keys (``trend_from``), which take attention that a head does
    not use, and the query itself, which is not an earlier token. A trend needs three keys or more,
    a p-value ten (else NaN). The exponent is fitted from position 1 on. Ablated heads have no
    exponent (NaN).

    Limits: neighbouring keys are not independent, so the p-value (of the rank correlation) is too
    small. Errors of the slope are over sequences; those of the exponent are a jackknife over ten
    groups of sequences.

    Source: "Recency bias in an induction head", figures 4 to 6 and "Cause of the intrinsic
    positional dependence"; fitted trends and exponents are ours.
    """

    name = "random-attention"
    title = "Attention to random tokens"
    noun_phrase = "attention to random tokens"
    values = outputs("""
        ± pattern [layer head query key], share of attention: mean attention
        ± slope [layer head query], share of attention per token: least-squares slope of a row over
            its keys; above zero where recent tokens get more
        rank_correlation [layer head query], correlation: Spearman's, of the mean row with the key's
            position
        p_value [layer head query], probability: of the rank correlation (not of the slope),
            two-sided, as if keys were independent; NaN for fewer than 10 keys
        ± norm [head_of_layer_0 pos], length of z: root mean square norm of the output ``z`` of each
            head of layer 0, before the output projection and after the switches (equalised norms
            are equal)
        ± norm_exponent [head_of_layer_0], exponent: exponent of its power law, fitted by least
            squares to ``log norm`` against the logarithm of the number of visible tokens
        visible_keys [pos], tokens: number of tokens that a position sees
    """)
    most = CLEAR_SAMPLES
    precomputed = "experiments"
    runs = "random_rows:random_attention"
