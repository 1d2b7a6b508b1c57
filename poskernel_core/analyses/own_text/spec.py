"""One text: the attention of all heads, and one head's scores split in two."""

from pydantic import Field

from poskernel_core.analyses.base import Experiment, SkipParams
from poskernel_core.analyses.sources import TextParams, text_run
from poskernel_core.common.result import outputs
from poskernel_core.common.specs import RunSpec

MAX_PATTERN_CELLS = 2**21
"""Most cells of all heads' patterns on one text, 8 MB."""

MAX_CELLS = 2**22
"""Most query-key pairs of one head on one text, 84 MB for all values."""


class OwnTextParams(SkipParams, TextParams):
    """Parameters of all heads on one text."""


class HeadOnTextParams(OwnTextParams):
    """Parameters of one head on one text."""

    head: str = Field(description="the head, such as L0H3")
    around: int | None = Field(
        None,
        ge=0,
        description="texts longer than 2048 tokens: the query in the middle of those that are kept "
        "(default: the last)",
    )


class _OnText(Experiment[OwnTextParams]):
    """An experiment on one text that uses the mean keys of the run."""

    ignores = Experiment.ignores | {"positions", "destination", "repeat_every"}
    gathers = ("keys",)
    uses = ("token embeddings",)

    def with_params(self, run: RunSpec, params: OwnTextParams) -> RunSpec:
        """Return the run whose mean keys are used."""
        text_run(run, params)
        return run

    def reads(self, run: RunSpec, params: OwnTextParams) -> RunSpec:
        """Return the run of the text alone; a text longer than the context is an error."""
        return text_run(run, params, whole=True)


class OwnText(_OnText):
    r"""All heads on one text: their attention, and the share of scores that position explains.

    Formula: $A(n,\cdot) = \mathrm{softmax}_i\, s(n,i)$; each score splits exactly into $s(n,i) =
    a(n,i) + c(n,i)$ with $a(n,i) = \text{scale}\; q_n \cdot m_i$, the score of the mean key of
    position $i$. The share that position explains is $\mathbb{E}_n \mathrm{Var}_i[a] \,/\,
    \mathbb{E}_n \mathrm{Var}_i[s]$ over the visible keys $i \ge \text{skip}$; content's share has
    $c$ in place of $a$, and twice the covariance of $a$ and $c$ makes the rest.

    Choices: the mean keys are those of the chosen corpus and run. All patterns together hold at
    most $2^{21}$ cells. In a longer text a cell stands for a block of queries and a block of keys:
    attention is averaged over these queries and summed over these keys, so that rows still sum to 1
    (minus a learned sink's share).

    Limits: one text shows what a head does there, not on average, so there are no errors. A text
    longer than the run's context is refused, because its end has no mean keys.

    Source: the split is that of "Positional kernels of attention heads".
    """

    name = "own-text"
    title = "All heads on one text"
    noun_phrase = "all heads on the text"
    precomputed = "shipped"
    params = OwnTextParams
    values = outputs("""
        pattern [layer head query key], share of attention: attention between tokens, or between
            blocks of tokens that begin at the coordinates
        position_share content_share covariance_share [layer head], share of variance: shares of
            position, of content, and twice their covariance in the scores of this text; they add up
            to 1
    """)
    continued = "text"
    runs = "all_heads"


class HeadOnText(_OnText):
    r"""One head on one text: scores split into position and content, kernel and attention.

    Formula: $s(n,i) = a(n,i) + c(n,i)$ with $a(n,i) = \text{scale}\; q_n \cdot m_i$, the score of
    the mean key of position $i$, and $c = s - a$; $A(n,\cdot)$ is the softmax of $s$ over the
    visible keys, and $K(n,\cdot)$ the softmax of $a$ over the visible $i \ge \text{skip}$. Shares
    of a row are $\mathrm{Var}_i[a]$, $\mathrm{Var}_i[c]$ and twice the covariance of $a$ and $c$,
    each divided by $\mathrm{Var}_i[s]$.

    Choices: caps and slopes are applied as in the model. So the position part is the capped score
    of the mean key, plus ALiBi's bias. The mean keys are those of the chosen corpus and run. The
    distance compares $K$ with the attention to the same keys, renormalised. At most $2^{22}$ pairs
    are kept: those of all queries in a text of up to 2,048 tokens, or those of the queries around a
    chosen query in a longer text.

    Limits: the mean key is a mean over the corpus. In a text unlike the corpus, what all keys have
    in common counts as content. There are no errors, because one text is one observation.

    Source: "Positional kernels of attention heads"; a head is positional if its share of position
    is near 1, symbolic if it is near 0 (2511.11579).
    """

    name = "own-text-head"
    title = "One head on one text"
    noun_phrase = "the head on the text"
    precomputed = "shipped"
    params: type[OwnTextParams] = HeadOnTextParams
    values = outputs("""
        score [query key], nats: $s(n,i)$; NaN where the query does not see the key
        position [query key], nats: $a(n,i)$, its part by position
        content [query key], nats: $c(n,i)$, its part by content
        pattern [query key], share of attention: $A(n,i)$
        kernel [query key], share of attention: $K(n,i)$; NaN on skipped keys
        position_share content_share covariance_share [query], share of variance: shares of
            position, of content, and twice their covariance in a row's scores; they add up to 1
        attention_distance [query], total variation distance: between the kernel and the attention
            to the same keys; 0: position decides, 1: they have nothing in common
        skipped [query], share of attention: attention to the skipped first keys
    """)
    continued = "text"
    runs = "one_head"


def kept_queries(length: int, around: int | None) -> range:
    """Return the queries of a text to keep: all, or as many as allowed around one or the last."""
    count = min(length, max(1, MAX_CELLS // length))
    middle = length - 1 if around is None else min(around, length - 1)
    first = min(max(middle - count // 2, 0), length - count)
    return range(first, first + count)


def kept_around(length: int, query: int) -> int | None:
    """Return ``around`` for a query; it is the same for neighbours, so they share a cache key."""
    count = len(kept_queries(length, None))
    if count == length:
        return None
    step = max(1, count // 2)
    return min(query // step * step + step // 2, length - 1)
