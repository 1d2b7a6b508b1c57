"""From heads to a circuit: who feeds whom, and how many heads are enough, over sets of pairs."""

from typing import Literal, TypeVar

from pydantic import Field

from poskernel_core.analyses.base import SkipParams
from poskernel_core.analyses.circuits.formulas import numbers_of_heads
from poskernel_core.analyses.kernel_only.spec import AFFORDABLE
from poskernel_core.analyses.patching.pairs import PairsParams
from poskernel_core.analyses.patching.spec import INTO_CHANGED, OfPairs, of_clear
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import layer_of
from poskernel_core.common.result import Result, estimates, outputs, ranges
from poskernel_core.common.specs import CorpusSpec, RunSpec
from poskernel_core.data.made import RANDOM
from poskernel_core.models.catalog import find_again

KEPT, BY_KERNELS, REMOVED = "kept", "kept, attending by their kernels", "removed"
OWN_ORDER, RANDOM_ORDER = "kept, in your order", "kept, in random order"
"""What is done with the first heads of a ranking."""
RANDOM_ORDERS = 10
INPUTS = ("query", "key", "value")
EMBEDDINGS = "embeddings"
P = TypeVar("P", bound=PairsParams)

SIZES = (
    *estimates("difference, nats: mean of what shares are of: the denominator", kind="plain"),
    *outputs("""
        pairs, pairs: those that show the behaviour
        left_out, pairs: those that do not: the clean prompt prefers its answer by less than 0.1
            nats more than the changed one
    """),
)


class Circuit(OfPairs[P]):
    """What questions about a set of pairs share; shares are of a difference that is clear."""

    long = True

    def with_params(self, run: RunSpec, params: P) -> RunSpec:
        if not params.of_set:
            raise BadRequest(
                "Expected a set of pairs of prompts, got none: give a table of pairs, or name a "
                "maker."
            )
        return run.model_copy(update={"positions": (0,)})

    @classmethod
    def derived(cls, result: Result) -> Result:
        """Blank out shares where the difference that they are of is not clear."""
        sizes = {value.name for value in SIZES}
        return of_clear(result, {value.name for value in cls.values} - sizes)


class FaithfulnessParams(PairsParams, SkipParams):
    """Parameters of how many heads are enough."""

    outside: Literal["changed", "mean", "kernel"] = Field(
        "changed",
        description="what the other heads give: their output on the pair's changed prompt, its "
        "mean over the changed prompts of the template, or attention by their kernels",
    )
    order: str = Field(
        "", max_length=8000, description="heads in an order of your own, such as 'L2H3, L0H1'"
    )
    kernel_windows: int = Field(
        60, ge=1, le=5000, description="windows of text that kernels are of"
    )


class Faithfulness(Circuit[FaithfulnessParams]):
    r"""How much of a behaviour the first heads of a ranking carry, and how much of it is content.

    Formula: with the metric $m$, the logit of the answer less that of the other answer at the last
    position of the clean prompt, **what is recovered** with $k$ heads is $F(k) = \sum_p (m_p(k) -
    m_p(0)) / \sum_p (m_p(H) - m_p(0))$, over pairs $p$: with the first $k$ heads kept and all
    others replaced, of no head kept ($0$) and all ($H$). ``k80`` is the least $k$ from which on
    $F \geq 0.8$. **Content** is $F(k)$ less what is recovered if the kept heads attend by their
    positional kernels, with their values computed.

    Choices: replaced heads put out what they do on the pair's changed prompt, at all positions; or
    its mean over the changed prompts of the same template and length; or they attend by the fixed
    rows of ``kernel-only-cost``, which are of windows of text. Kept heads, MLPs and norms are
    computed. Heads are ranked by the size of a first-order estimate of what they carry: the change
    of their output between the prompts times the gradient of the metric, at both prompts. The
    ranking comes from one half of the groups of pairs, the curve from the other; the halves are
    swapped, and sums run over both. With the first heads **removed**, the others are kept. Beside
    them: your own order, others following by their rank, and the mean of ten random orders.

    Limits: a circuit depends on its set of prompts, and on what takes the place of the other heads.
    $F$ may leave 0 to 1, as heads work against each other. It is NaN where the interval of its
    denominator does not lie above 0.5 nats. Errors hold the ranking fixed.

    Source: "Interpretability in the Wild: a Circuit for Indirect Object Identification in GPT-2
    small" (2211.00593); estimates as in "Attribution Patching Outperforms Automated Circuit
    Discovery" (2310.10348).
    """

    name = "faithfulness"
    title = "How many heads are enough?"
    noun_phrase = "how many heads are enough for a behaviour"
    values = (
        *outputs("""
            ± recovered [curve first], share of the behaviour: what is recovered with so many heads
                kept, or removed; coordinates are numbers of heads
            ± content [first], share of the behaviour: what the patterns of the kept heads add to
                their kernels
            random_low random_high [first], share of the behaviour: the least and the most that is
                recovered by one of the random orders
        """),
        *ranges("""
            k80 [curve], heads: the fewest from which on 0.8 is recovered, or still is; NaN: none
        """),
        *SIZES,
    )
    texts = outputs("""
        curve [curve], name: what is done with the first heads, and of which order
        ranking [half place], head: the heads by what they carry, for each half of the groups
    """)
    runs = "enough:faithfulness"

    def with_params(self, run: RunSpec, params: FaithfulnessParams) -> RunSpec:
        own = {"context": min(run.context, AFFORDABLE), "windows": params.kernel_windows}
        return super().with_params(run, params).model_copy(update=own)

    def tokens(self, run: RunSpec, params: FaithfulnessParams) -> int:
        geometry = find_again(run.model).geometry
        counts = numbers_of_heads(len(geometry.with_heads) * geometry.n_heads)
        runs = (RANDOM_ORDERS + 4) * len(counts) + 4
        return 2 * params.kernel_windows * run.context + runs * params.prompt_tokens // 2


class EdgesParams(PairsParams):
    """Parameters of edges into heads."""

    head: str = Field(
        "",
        max_length=16,
        description="the head whose edges are computed exactly, such as L2H3; empty: edges into "
        "the heads that carry most are estimated",
    )
    receivers: int = Field(
        8, ge=1, le=64, description="without a head: how many heads edges are estimated into"
    )
    direction: Literal["clean-into-changed", "changed-into-clean"] = Field(
        INTO_CHANGED, description="the prompts that inputs come from, and those that are run"
    )


class Edges(Circuit[EdgesParams]):
    r"""How much of a behaviour comes into a head's queries, keys or values from each earlier part.

    Formula: with the stream $x$ before the layer of the **receiver**, in the run of one prompt, and
    what a **sender** adds to it, $o_s$, an **edge** is the change of the metric $m$ if one input of
    the receiver is computed from $x + o_s^\text{other} - o_s$, with $o_s^\text{other}$ of the
    pair's other prompt: $\sum_p (m_p^\text{edge} - m_p) / \sum_p (m_p^\text{other} - m_p)$ over
    pairs $p$. **Whole** is the same with all of the other prompt's stream; what the sum of edges
    lacks to it is **not linear**. The **estimate** is the change of the input to first order, times
    the gradient of the metric by it, the mean of both prompts.

    Choices: senders are heads, MLPs and the embeddings below the receiver's layer, at all
    positions; a head counts with its share of the output projection, and a norm behind it at each
    prompt's own scale, so that senders add up to the stream. The norm before attention, biases,
    norms of queries and keys, and rotation are computed anew for one input; the receiver's other
    inputs, and all other heads, are those of the prompt that is run; layers above are computed.
    A receiver that shares keys and values gets a copy of its own. The metric is the logit of the
    answer less that of the other answer at the last position.

    Limits: edges are direct paths alone: what a sender changes in parts between it and the receiver
    is not in its edge, as these are senders themselves. Edges of different receivers do not add up.
    A circuit depends on its set of prompts. Shares are NaN where the interval of their denominator
    does not lie above 0.5 nats. An estimate can be far off where attention is nearly one or zero:
    ``agreement`` says how well it ranks the edges of a head.

    Source: path patching, of "Interpretability in the Wild: a Circuit for Indirect Object
    Identification in GPT-2 small" (2211.00593); estimates after "Attribution Patching Outperforms
    Automated Circuit Discovery" (2310.10348).
    """

    name = "edges"
    title = "Who feeds whom between two prompts"
    noun_phrase = "what each part of the model feeds into heads"
    values = (
        *outputs("""
            ± edge [receiver input sender], share of the difference: what comes from the sender into
                the input, exactly; NaN without a chosen head, and for senders that are not earlier
            ± estimate [receiver input sender], share of the difference: the same to first order
            ± whole [receiver input], share of the difference: what comes into the input from all
                senders together; NaN without a chosen head
            ± nonlinear [receiver input], share of the difference: whole, less the sum of edges
            ± carried [layer head], share of the difference: what the head carries, to first order
            agreement, correlation: Spearman's, of a chosen head's edges with their estimates
        """),
        *SIZES,
    )
    texts = outputs("""
        receiver [receiver], head: the heads that edges lead into
        input [input], name: query, key or value
        sender [sender], name: where edges begin
    """)
    ignores = Circuit.ignores | {"corpus"}
    runs = "edges:edges"

    def with_params(self, run: RunSpec, params: EdgesParams) -> RunSpec:
        made = {"corpus": CorpusSpec(name=RANDOM), "windows": 2}
        return super().with_params(run, params).model_copy(update=made)

    def reads(self, run: RunSpec, params: EdgesParams) -> RunSpec:
        """Return two windows with the start token alone."""
        return run.model_copy(update={"context": 1})

    def tokens(self, run: RunSpec, params: EdgesParams) -> int:
        senders = 1 + max(0, layer_of(params.head)) * (find_again(run.model).geometry.n_heads + 1)
        return (4 + 3 * senders * bool(params.head)) * params.prompt_tokens
