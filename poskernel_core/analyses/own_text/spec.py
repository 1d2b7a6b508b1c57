"""One text of the reader's: the attention of all heads, and one head's scores split in two."""

from collections.abc import Mapping

from pydantic import Field

from poskernel_core.analyses.base import Experiment, SkipParams
from poskernel_core.analyses.sources import TextParams, text_run
from poskernel_core.common.result import outputs
from poskernel_core.common.specs import RunSpec

MAX_PATTERN_CELLS = 2**21
"""Cells of all heads' patterns together that are kept of one text, 8 MB."""

MAX_CELLS = 2**22
"""Pairs of query and key that are kept of one head on one text, 84 MB for all values."""


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
    """An experiment on one text that stands on the mean keys of the run."""

    ignores = Experiment.ignores | {"positions", "destination", "repeat_every"}
    uses = ("token embeddings",)

    def with_params(self, run: RunSpec, params: OwnTextParams) -> RunSpec:
        """Return the run whose mean keys are used.

        Raises:
            BadRequest: no text is given.
        """
        text_run(run, params)
        return run

    def needs(self, run: RunSpec, params: OwnTextParams) -> Mapping[str, RunSpec]:
        """Return the run, for its mean keys."""
        return {"main": run.model_copy(update={"gather": ("keys",)})}

    def reads(self, run: RunSpec, params: OwnTextParams) -> RunSpec:
        """Return the run of the text alone; one that is longer than the context is refused."""
        return text_run(run, params, whole=True)


class OwnText(_OnText):
    r"""All heads on one text: their attention, and position's share of their scores there.

    Formula: $A(n,\cdot) = \mathrm{softmax}_i\, s(n,i)$; each score splits exactly into
    $s(n,i) = a(n,i) + c(n,i)$ with $a(n,i) = \text{scale}\; q_n \cdot m_i$, the score of the mean
    key of that position. The share that position explains is
    $\mathbb{E}_n \mathrm{Var}_i[a] \,/\, \mathbb{E}_n \mathrm{Var}_i[s]$ over the visible keys
    $i \ge \text{skip}$, content's the same of $c$, and twice their covariance is the rest.

    Choices: the mean keys are those of the chosen corpus and run. All patterns together hold at
    most $2^{21}$ cells: in a longer text a cell stands for a block of tokens, over whose queries
    attention is averaged and over whose keys it is summed, so that rows still sum to 1 (less what a
    learned sink takes).

    Limits: one text shows what a head does there, not what it does on average: there are no errors.
    A text that is longer than the run's context has no mean keys at its end, and is refused.

    Source: the split is that of "Positional kernels of attention heads".
    """

    name = "own-text"
    title = "All heads on one text"
    noun_phrase = "all heads on the text"
    params = OwnTextParams
    values = (
        *outputs(
            "pattern",
            "layer head query key",
            "share of attention",
            "attention between tokens, or between blocks of tokens that begin at the coordinates",
        ),
        *outputs(
            "position_share content_share covariance_share",
            "layer head",
            "share of variance",
            "shares of position, of content, and twice their covariance in the scores of this "
            "text; they add up to 1",
        ),
    )
    figure = "all_heads_figure"
    runs = "all_heads"


class HeadOnText(_OnText):
    r"""One head on one text: each score split into position and content, and what they make.

    Formula: $s(n,i) = a(n,i) + c(n,i)$ with $a(n,i) = \text{scale}\; q_n \cdot m_i$, the score of
    the mean key of position $i$, and $c = s - a$; $A(n,\cdot)$ is the softmax of $s$ over the
    visible keys, $K(n,\cdot)$ that of $a$ over the visible $i \ge \text{skip}$. Shares of a row are
    $\mathrm{Var}_i[a]$, $\mathrm{Var}_i[c]$ and twice their covariance over $\mathrm{Var}_i[s]$.

    Choices: caps and slopes as in the model: the position part is the capped score of the mean key,
    and ALiBi's bias belongs to it. The mean keys are those of the chosen corpus and run. The
    distance compares $K$ with the attention to the same keys, which is divided by its sum. At most
    $2^{22}$ pairs are kept: all of a text of 2,048 tokens, in a longer one the queries around one.

    Limits: the mean key is a mean over the corpus: on a text that is unlike it, what all of its
    keys have in common counts as content. No errors: one text is one observation.

    Source: "Positional kernels of attention heads"; a head whose share of position is near 1 is
    positional, near 0 symbolic (2511.11579).
    """

    name = "own-text-head"
    title = "One head on one text"
    noun_phrase = "the head on the text"
    params: type[OwnTextParams] = HeadOnTextParams
    values = (
        *outputs(
            "score", "query key", "nats", "$s(n,i)$; NaN where the query does not see the key"
        ),
        *outputs("position", "query key", "nats", "$a(n,i)$, its part by position"),
        *outputs("content", "query key", "nats", "$c(n,i)$, its part by content"),
        *outputs("pattern", "query key", "share of attention", "$A(n,i)$"),
        *outputs("kernel", "query key", "share of attention", "$K(n,i)$; NaN on skipped keys"),
        *outputs(
            "position_share content_share covariance_share",
            "query",
            "share of variance",
            "shares of position, of content, and twice their covariance in a row's scores; they "
            "add up to 1",
        ),
        *outputs(
            "attention_distance",
            "query",
            "total variation distance",
            "between the kernel and the attention to the same keys; 0: position decides, 1: they "
            "have nothing in common",
        ),
        *outputs("skipped", "query", "share of attention", "attention to the skipped first keys"),
    )
    figure = "head_figure"
    runs = "one_head"


def kept_queries(length: int, around: int | None) -> range:
    """Return the queries that are kept of a text: all, or as many as the bound allows around one.

    Args:
        length: of the text, in tokens.
        around: the query in the middle (default: the last).
    """
    count = min(length, max(1, MAX_CELLS // length))
    middle = length - 1 if around is None else min(around, length - 1)
    first = min(max(middle - count // 2, 0), length - count)
    return range(first, first + count)


def kept_around(length: int, query: int) -> int | None:
    """Return what to ask for so that a query is kept, one answer for many neighbouring ones."""
    count = len(kept_queries(length, None))
    if count == length:
        return None
    step = max(1, count // 2)
    return min(query // step * step + step // 2, length - 1)
