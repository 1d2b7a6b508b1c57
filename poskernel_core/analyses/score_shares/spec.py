"""Score variance explained by position and by content."""

from pydantic import Field

from poskernel_core.analyses.base import Experiment, SkipParams
from poskernel_core.analyses.head_measure import grid_measures
from poskernel_core.common.result import estimates


class ShareParams(SkipParams):
    """Parameters of the score variance explained."""

    first_windows: int = Field(
        64, ge=2, le=10_000, description="first windows of text, whose scores are compared"
    )


class ScoreShares(Experiment[ShareParams]):
    r"""Score variance explained by position, and by content, for every head.

    Formula: each score splits exactly into $s(n,i) = a(n,i) + c(n,i)$, with the score of the mean
    key $a(n,i) = \text{scale}\; q_n \cdot m_i$. Over the visible keys $i \ge \text{skip}$ of a row,
    position explains the share $\mathbb{E}\,\mathrm{Var}_i[a] \,/\, \mathbb{E}\,\mathrm{Var}_i[s]$;
    content's share has $c$ in place of $a$, and twice the covariance of $a$ and $c$ makes the rest.
    The three sum to 1.

    Choices: the softmax ignores a constant in a row, so variances are taken within a row. At every
    recorded position, the two means are taken over one query of each window, and then divided. Mean
    keys of few texts are noisy, and their noise would count as position. So $\mathrm{Var}_i[a]$ is
    the mean of $\mathrm{Cov}_i[a_g, a_h]$ over pairs of groups $g \ne h$ of texts, each with its
    own mean keys; the query comes from a third group. Similarly, $\mathrm{Cov}_i[s, a]$ is the mean
    of $\mathrm{Cov}_i[s, a_g]$ over the groups other than the query's. Then $\mathrm{Var}[c] =
    \mathrm{Var}[s] - 2\,\mathrm{Cov}[s, a] + \mathrm{Var}[a]$. With a soft cap, $a_g$ is the capped
    score of the group's mean key. With fewer than four groups, products within a group count too.

    Limits: variance weights all keys equally, even those that no head attends to. Where position
    and content oppose each other, the covariance is negative and a share may be above 1; by chance
    a share may be below 0. Errors come from leaving out one group of texts at a time, from the
    windows and from the mean keys. With fewer than four groups, noise adds to the share of
    position.

    Source: the split is that of "Positional kernels of attention heads"; a head with shares of
    position and content near 1 and 0 is positional, one near 0 and 1 symbolic (2511.11579).
    """

    name = "score-variance"
    title = "Score variance explained by position"
    noun_phrase = "score variance explained by position"
    error_counts = "windows"
    values = estimates("""
        position_share content_share covariance_share [layer head query], share of variance: shares
            of position, of content, and twice their covariance; they add up to 1
    """)
    precomputed = "experiments"
    measures = grid_measures("""
        score variance explained by position [position_share, linear], share of variance: Bright:
            which key scores high depends on where it stands; dark: on what it is.
        score variance explained by content [content_share, linear], share of variance: Bright:
            which key scores high depends on what it is; dark: on where it stands.
    """)
    gathers = ("keys",)
    long = True
    runs = "score_shares"
