"""What decides the scores of rotary heads: place, content, or both together."""

from pydantic import Field

from poskernel_core.analyses.base import Experiment, SkipParams
from poskernel_core.analyses.head_measure import grid_measures
from poskernel_core.common.result import estimates
from poskernel_core.common.specs import RunSpec


class PlaceAndContentParams(SkipParams):
    """Parameters of the shares of place and content."""

    first_windows: int = Field(
        30, ge=2, le=10_000, description="first windows of text, whose keys are moved"
    )


class PlaceAndContent(Experiment[PlaceAndContentParams]):
    r"""How much of a rotary head's scores place decides, content decides, or only both together.

    Formula: rotary attention lets every key be moved to every place. For the query $q$ at $n$, let
    $G(i,j) = U_i \cdot k_j$ be the score of key $j$ at place $i$, with the key before rotation
    $k_j$ and $U_i = \text{scale}\; R_i^\top q$, for all visible $i, j \ge \text{skip}$. The
    variance of this two-way table splits into three parts, none negative. Place: $P = \bar k^\top
    \mathrm{Cov}(U)\, \bar k$, the variance of the means over keys. Content: $S = \bar U^\top
    \mathrm{Cov}(k)\, \bar U$, that of the means over places. Both together: $E = \sum_{ab}
    \mathrm{Cov}(U)_{ab}\, \mathrm{Cov}(k)_{ab}$, the interaction. The shares are
    $\mathbb{E} P$, $\mathbb{E} S$ and $\mathbb{E} E$, divided by $\mathbb{E}[P + S + E]$.

    Choices: the means are over one query of each window, at each recorded position; then they are
    divided. Real scores are the diagonal $G(i,i)$. There, place and content need not be
    independent: ``covariance_share`` is $2\,\mathbb{E}\,\mathrm{Cov}_i[U_i \cdot \bar k,\, \bar U
    \cdot k_i]$ over the same sum. It is not one of the three shares, and lies between -1 and 1. The
    rotation is the model's own, read while it runs. Dimensions and layers without rotation have
    $U_i = U_0$. Scores are those before a soft cap.

    Limits: variance weights all keys equally, even those that no head attends to. What a key knows
    of its place before rotation counts as content, so a key that stands for its place (as the first
    key of a text may) makes content. Errors come from leaving out one group of texts at a time.

    Source: ours; the question is that of "Decoupling Positional and Symbolic Attention Behavior in
    Transformers" (2511.11579), which permutes the keys of a text instead.
    """

    name = "place-and-content"
    title = "Place, content, and both together"
    noun_phrase = "the shares of place and content"
    error_counts = "windows"
    scheme = "rotary"
    values = estimates("""
        place_share content_share both_share [layer head query], share of variance: shares that
            place, content, and only both together explain; they add up to 1
        covariance_share [layer head query], share of variance: twice the covariance of place and
            content in the real scores, over the same sum
    """)
    measures = grid_measures("""
        place share [place_share, unit], share of variance: Bright: where a key stands decides its
            score, whatever the key.
        content share [content_share, unit], share of variance: Bright: what a key is decides its
            score, wherever it stands.
        share of both together [both_share, unit], share of variance: Bright: a key scores high only
            at its own right place; dark: place and content add.
    """)
    ignores = Experiment.ignores | {"windows"}
    precomputed = "experiments"
    long = True
    runs = "place_and_content"

    def with_params(self, run: RunSpec, params: PlaceAndContentParams) -> RunSpec:
        return run.model_copy(update={"windows": params.first_windows})
