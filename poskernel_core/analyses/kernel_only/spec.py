"""The kernel as a cause: what a model loses if heads attend by position alone."""

from typing import Literal, TypeVar

import numpy as np
from pydantic import Field

from poskernel_core.analyses.base import OWN_WINDOWS, Experiment, SkipParams
from poskernel_core.analyses.head_measure import grid_measures
from poskernel_core.common.groups import GROUPS
from poskernel_core.common.result import BESIDE, Result, Value, estimates, outputs
from poskernel_core.common.specs import RunSpec

AFFORDABLE = 128
"""Largest default length of a window, in tokens: whole patterns of all heads are held."""

EXACT = ("estimate", "exact")


class KernelOnlyParams(SkipParams):
    """The windows of all questions about heads that attend by position alone."""

    tokens: int | None = Field(
        None,
        ge=2,
        le=1024,
        description=f"tokens per window; default: the run's context, up to {AFFORDABLE}",
    )
    kernel_windows: int = Field(
        60, ge=1, le=5000, description="windows of text that kernels and mean patterns are of"
    )
    loss_windows: int = Field(
        20, ge=1, le=1000, description="windows of other text that the loss is taken over"
    )


class KernelOnlyHeadParams(KernelOnlyParams):
    """Parameters of the exact costs of one head."""

    head: str = Field(min_length=1, max_length=16, description="head such as L0H3")


class HeadsReplacedParams(KernelOnlyParams):
    """Parameters of the loss with many heads replaced."""

    draws: int = Field(4, ge=1, le=64, description="draws of random signs for the estimate")


class KernelOnlyCostParams(HeadsReplacedParams):
    """Parameters of the costs of all heads."""

    exact: Literal["largest", "all"] = Field(
        "largest", description="heads whose cost is exact: the ten of the largest estimate, or all"
    )


P = TypeVar("P", bound=KernelOnlyParams)


class KernelOnly(Experiment[P]):
    """What the questions share: windows for kernels, and windows of other documents for the loss.

    Half of the groups of windows give the kernels, the other half the loss.
    """

    uses = ("predictions",)
    error_counts = "windows"
    ignores = Experiment.ignores | OWN_WINDOWS
    long = True
    clean = estimates("clean_loss, nats: the loss as it is, per token")

    def with_params(self, run: RunSpec, params: P) -> RunSpec:
        length = params.tokens or min(run.context, AFFORDABLE)
        half = max(params.kernel_windows, params.loss_windows)
        windows = max(GROUPS, 2 * half)
        return run.model_copy(update={"context": length, "windows": windows, "positions": (0,)})

    @classmethod
    def derived(cls, result: Result) -> Result:
        """Blank out shares where the cost of the mean output may be 0."""
        low = result.lows.get("cost")
        if low is None or "replacement" not in result.axes["cost"]:
            return result
        unknown = ~(low[-1] > 0)
        for arrays in (getattr(result, part) for part in ("values", *BESIDE)):
            if "kernel_only_share" in arrays:
                share = np.where(unknown, np.nan, arrays["kernel_only_share"])
                arrays["kernel_only_share"] = share.astype(arrays["kernel_only_share"].dtype)
        return result


def costs(axes: str) -> tuple[Value, ...]:
    """Declare the costs of replacements, and what they say of the kernel alone."""
    return estimates(f"""
        cost [{f"replacement {axes}".strip()}], nats: rise of the loss, per token, with each
            replacement of the head
        kernel_only_cost [{axes}], nats: rise of the loss, per token, if the head attends by its
            kernel alone
        kernel_only_share [{axes}], share of the head's effect: what the kernel keeps of what the
            head gives; NaN where the cost of the mean output cannot be told from 0
    """)


class KernelOnlyCost(KernelOnly[KernelOnlyCostParams]):
    r"""What the model loses, in nats a token, if a head attends by its positional kernel alone.

    Formula: the head's pattern is replaced by one that is the same for every text: at the query $n$
    the first ``skip`` keys keep their mean observed attention, and the positional kernel
    $K(n,\cdot)$ spreads the mean mass of all others (queries $n < \text{skip}$: the mean observed
    row). Values stay the text's own. The **cost** is the rise of the loss. For most heads it is
    estimated: with the change $\delta$ of the head's output, the gradient $g$ of the loss by that
    output, and the gradients $g_s$ of $\sum_{t,y} e_{ty} \sqrt{p_t(y)} \log p_t(y)$ over all
    positions and tokens, with $p$ held fixed under the root and random signs $e_{ty}$, it is
    $\langle g, \delta\rangle + \frac{1}{2N} \overline{\langle g_s, \delta\rangle^2}$, with a
    window's $N$ predicted tokens and a mean over draws; in the last layer, where a position acts on
    its own prediction alone, the squares of all positions are summed. The **share kept** is
    $1 - \text{cost}(\text{kernel}) / \text{cost}(\text{mean output})$.

    Choices: replacements are the kernel; the mean observed pattern; the equivariant kernel (rotary
    models; spread as the kernel is); a uniform row over all visible keys; zero, the head's output
    removed; and the mean output over texts and positions. The share is shown only where the
    interval of its denominator is above 0; against zero, the kernel would be credited with the
    head's constant output. ``exact`` says which heads are computed exactly: those with the ten
    largest estimates, or all with ``--exact all``. Half of the groups of texts give kernels and
    means, the loss is of the other half. With a learned sink, the mean mass is what it leaves.

    Limits: an estimate is of second order, and can be several times too large for a large cost in
    an early layer; its error says only how texts differ. A cost can be negative: a head may harm.
    Heads are replaced one at a time: what another head takes over is not seen. In a window of few
    tokens, heads that look far back are judged by what is there.

    Source: ours; mean patterns in place of all heads' as in "How Much Does Attention Actually
    Attend? Questioning the Importance of Attention in Pretrained Transformers" (2211.03495).
    """

    name = "kernel-only-cost"
    title = "If only position decided"
    noun_phrase = "what the model loses if heads attend by their kernels alone"
    values = (
        *costs("layer head"),
        *estimates(
            "estimated_cost [layer head], nats: the estimate of the cost of the kernel alone"
        ),
        *outputs("exact [layer head], how: whether costs are exact", labels=EXACT),
        *KernelOnly.clean,
    )
    texts = outputs("replacement [replacement], name: what takes the head's place")
    measures = grid_measures("""
        cost of the kernel alone (estimate) [kernel_only_cost, diverging], nats per token: Dark: the
            model loses little if the head attends by its kernel alone. An estimate, but for the ten
            heads with the largest.
        share kept by the kernel alone (estimate) [kernel_only_share, unit], share of the head's
            effect: Bright: attending by the kernel alone, the head still gives the model what it
            gives. Grey: what it gives cannot be told from nothing. An estimate, but for the ten
            heads with the largest cost.
    """)
    precomputed = "experiments"
    runs = "kernel_only_cost"

    def tokens(self, run: RunSpec, params: KernelOnlyCostParams) -> int:
        backward = params.loss_windows * 2 * (2 + params.draws)
        return run.context * (2 * params.kernel_windows + backward)


class KernelOnlyHead(KernelOnly[KernelOnlyHeadParams]):
    r"""What the model loses with one head replaced, exactly: its kernel alone, and five others.

    Formula: the head's pattern, or its output, is replaced as for ``kernel-only-cost``; the cost is
    the mean rise of $-\log p(t_n \mid t_{<n})$ against the clean run of the same windows.

    Choices: as for ``kernel-only-cost``. Runs begin at the head's layer, with the stream of the
    clean run.

    Limits: errors are over groups of texts. Costs of several heads do not add up.

    Source: ours; mean patterns as in "How Much Does Attention Actually Attend?" (2211.03495).
    """

    name = "kernel-only-head"
    title = "One head by position alone"
    noun_phrase = "what the model loses with this head replaced"
    precomputed = "shipped"
    values = (*costs(""), *KernelOnly.clean)
    texts = outputs("replacement [replacement], name: what takes the head's place")
    runs = "kernel_only_head"


class HeadsReplaced(KernelOnly[HeadsReplacedParams]):
    r"""The loss with more and more heads replaced by their kernels, or by their mean patterns.

    Formula: with the $k$ heads of the smallest costs replaced, the rise of the loss is $\ell(k) -
    \ell(0)$. The number of heads for a loss is the $k$ where the curve first passes it, on a line
    between two computed numbers.

    Choices: heads are ordered by the estimates of ``kernel-only-cost`` on texts that the kernels
    are of, as many as the loss is taken over: so no head is chosen by the texts that it is judged
    on. Mean patterns follow the same rule, in their own order.

    Limits: the order by single costs is not the best one: it does not see what heads do together.
    The first crossing of a noisy curve comes too early.

    Source: ours; mean patterns as in "How Much Does Attention Actually Attend?" (2211.03495).
    """

    name = "heads-replaced"
    title = "How many heads could attend by position alone?"
    noun_phrase = "the loss with more and more heads attending by position alone"
    values = (
        *estimates("""
            loss_change [pattern heads], nats: rise of the loss with that many heads replaced;
                coordinates are numbers of heads
        """),
        *estimates(
            """
            heads_for_tenth [pattern], heads: how many can be replaced for 0.1 nats
            heads_for_5_percent [pattern], heads: how many can be for 5 % of the loss
            """,
            kind="plain",
        ),
        *KernelOnly.clean,
    )
    texts = outputs("pattern [pattern], name: what the heads attend by")
    precomputed = "experiments"
    runs = "heads_replaced"
