"""What is drawn, read and said of contextual heads, their denominators and their tokens."""

import math
from collections.abc import Iterator

import numpy as np

from poskernel_core.analyses.claims import (
    WEAK,
    Claim,
    Head,
    Number,
    Stands,
    at_limit,
    number_of,
    param,
    told,
    who,
)
from poskernel_core.analyses.contextual_heads.figures import (
    at_distances,
    denominators,
    plane,
    variation,
    weights,
)
from poskernel_core.analyses.contextual_heads.spec import BEHAVIOURS
from poskernel_core.analyses.discoveries import Condition, Heads, discovered
from poskernel_core.analyses.views import View, Views, heads_view
from poskernel_core.common.jackknife import Estimate
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import TRACE, brief, counted
from poskernel_core.plotting.layout import visible

NEAR = 10
"""Tokens back up to which a duplicate is near, as in ``near_duplicates``."""


def _head(result: Result) -> str:
    return told(result, (claim for claim in contextual(Head(result)) if claim.passes == "yes"))


def _duplicates(result: Result) -> str:
    return told(result, _drawn(_extra(result), param(result, "duplicates")))


def duplicates(head: Head) -> Iterator[Claim]:
    """Yield whether a head attends to earlier duplicates of the current token."""
    extra = {name: head.number(f"{name}_duplicates") for name in ("near", "far")}
    yield from _drawn(extra, head.param("duplicates"))


def _drawn(extra: dict[str, Number], limit: float) -> Iterator[Claim]:
    """Yield the larger of a head's extra attention to near and to far duplicates."""
    known = {name: number for name, number in extra.items() if not math.isnan(number.value)}
    if known:
        name, number = max(known.items(), key=lambda pair: pair[1].value)
        extra_share = f"{number}" if number.value >= TRACE else f"less than {TRACE:g}"
        text = f"{{it}} gives {name} duplicates of the current token {extra_share} more of its "
        text += "attention than other tokens there"
        label, fails = "a duplicate-token head", "not drawn to duplicates"
        yield from at_limit("duplicates", number, limit, text, label, fails, WEAK)


def contextual(head: Head) -> Iterator[Claim]:
    """Yield whether a broad kernel's denominator is nearly the same in all windows."""
    spread, width = head.number("denominator_cv"), head.number("etc").value
    steady = head.param("steady")
    varies = spread.passes(steady)
    if varies is None or math.isnan(width):
        return
    text = f"{{its}} softmax denominator varies by {spread} of its mean from window to window"
    group = BEHAVIOURS[int(head.number("group").value)]
    other = group not in ("contextual", "other") or width < head.param("broad")
    drawn = any(claim.passes in ("yes", "about") for claim in duplicates(head))
    passes: dict[str, Stands] = {"yes": "below", "no": "yes", "about": "about"}
    holds = "below" if other or drawn else passes[varies]
    yield Claim("contextual", text, spread, "a contextual head", holds, f"{steady:g}")


def _contextual(result: Result) -> str:
    contextual_heads = _contextual_heads(result)
    count, beside = contextual_heads.count, contextual_heads.beside
    heads = int(np.isfinite(result.values["denominator_cv"]).sum())
    if not count:
        return ""
    return (
        f"{count:,} of {counted(heads, 'head')} {'is' if count == 1 else 'are'} "
        f"contextual{beside}: "
        f"by position they spread over {param(result, 'broad'):g} tokens or more, and "
        f"their softmax denominator varies by less than {param(result, 'steady'):g} of its mean."
    )


def _contextual_heads(result: Result) -> Heads:
    """Return which heads of the contextual group are steady and not drawn to duplicates.

    The kernel's numbers have no errors. Where there were no duplicates, none draws a head.
    """
    group = (result.values["group"] == BEHAVIOURS.index("contextual")).astype(float)
    conditions = [
        Condition(Estimate(group, group, group), 1),
        Condition("denominator_cv", param(result, "steady"), "below"),
    ]
    for name in ("near_duplicates", "far_duplicates"):
        every = result.estimate_of(name)
        extra = Estimate(*(np.where(np.isnan(every.value), 0.0, part) for part in every))
        conditions.append(Condition(extra, param(result, "duplicates"), "below"))
    return discovered(result, *conditions)


def _extra(result: Result) -> dict[str, Number]:
    """Return the extra attention to near and to far duplicates, with the largest error.

    Errors at different distances need not be independent, so they are averaged.
    """
    names = ("duplicate_attention", "baseline")
    seen, other = (result.values[name].astype(float) for name in names)
    error = np.hypot(*(result.errors.get(name, np.zeros_like(seen)) for name in names))
    gap, near = seen - other, result.coordinates["distance"] <= NEAR
    known = np.isfinite(gap)
    return {
        name: Number.within(float(gap[some].mean()), result.interval * float(error[some].mean()))
        for name, some in (("near", near & known), ("far", ~near & known))
        if some.any()
    }


def _variation(result: Result) -> str:
    place = len(result.coordinates["query"]) - 1
    spread = number_of(result, "denominator_cv", place)
    expected = float(result.values["predicted_cv"][place])
    passes = None if math.isnan(expected) else spread.passes(expected)
    if passes in (None, "about") or str(spread) == brief(expected):
        return ""
    return (
        f"At n = {result.coordinates['query'][place]} the softmax denominator of {who(result)} "
        f"varies by {spread} of its mean from window to window, "
        f"{'more' if passes == 'yes' else 'less'} than the {brief(expected)} of independent "
        "content."
    )


def _mean(result: Result) -> str:
    first, last = 0, len(result.values["mean"]) - 1
    passes = (number_of(result, "mean", last) - number_of(result, "mean", first)).passes(0)
    if first == last or passes not in ("yes", "no"):
        return ""
    start, end = (brief(result.values["mean"][place]) for place in (first, last))
    before, after = (result.coordinates["query"][place] for place in (first, last))
    verb = "rises" if passes == "yes" else "falls"
    return (
        f"The mean softmax denominator of {who(result)} {verb} from {start} at n = {before} to "
        f"{end} at n = {after}."
    )


def _weights(result: Result) -> str:
    """Name the token with the highest lower end: a few occurrences can give a high mean."""
    scores, low, _ = result.estimate_of("log_weight")
    if not np.isfinite(low).any() or "top_value" not in result.values:
        return ""
    best = int(np.nanargmax(low))
    rank = int(np.abs(result.values["top_value"] - scores[best]).argmin())
    if low[best] <= 0 or not math.isclose(
        result.values["top_value"][rank], scores[best], abs_tol=1e-6
    ):
        return ""
    return (
        f"By content {who(result)} weights «{visible(result.words('top_words')[rank])}» up: it "
        f"gets {brief(math.exp(scores[best]))} times the attention that position alone gives it, "
        f"and at least {brief(math.exp(low[best]))} times (95 % interval)."
    )


OF_GROUP = "group denominator_cv etc near_duplicates far_duplicates"

VIEWS: Views = {
    "contextual-heads": (
        View(f"{OF_GROUP} []", says=_head),
        View(
            "duplicate_attention baseline [distance]",
            at_distances,
            "attention to an earlier duplicate",
            says=_duplicates,
            reading="Attention to an earlier duplicate of the current token, by how far back it "
            "stands, and to another token at the same distance. In a duplicate-token head the "
            "first line lies far above the second; some such heads see near duplicates only.",
        ),
        View(f"{OF_GROUP} [layer head]", says=_contextual),
        View(
            "etc denominator_cv predicted_cv group [layer head]",
            plane,
            reading="One mark per head. To the right: the kernel covers many tokens. Down: the "
            "softmax denominator of the destination token is nearly the same in all windows. Heads "
            "in the tinted corner average over the context, with weights that hardly depend on the "
            "context: they write a bag of tokens. Heads of layer 0 with a local kernel join "
            "the pieces of a word; those of later layers need not.",
        ),
        heads_view("denominator_cv", "CV of the softmax denominator", "steady", below=True),
        heads_view(
            "far_duplicates",
            "extra attention to far duplicates of the current token",
            "duplicates",
        ),
    ),
    "denominators": (
        View(
            "denominator [text query], mean [query]",
            denominators,
            "{head}: denominators",
            reading="The destination token is put at each position of each window; the lines show "
            "its softmax denominator there. If the lines are flat and close together, the head "
            "divides by the same number everywhere. Lines of other texts (chapters, your own) lie "
            "apart if the head weights the tokens of these texts differently.",
        ),
        View(
            "denominator_cv predicted_cv etc [query]",
            variation,
            "{head}: CV of the softmax denominator",
            reading="The coefficient of variation (CV) of the softmax denominator over windows: "
            "its standard deviation, relative to its mean. Dashed: the value expected if the "
            "tokens of a window were independent. The title gives the number of windows. The "
            "measure of all heads reads more windows. If a few keys carry the denominator, that "
            "measure and this curve may differ by more than their errors.",
        ),
        View("denominator_cv predicted_cv [query]", says=_variation),
        View("mean [query]", says=_mean),
    ),
    "token-weights": (
        View(
            "log_weight [token]",
            weights,
            "{head}: content weights of tokens",
            says=_weights,
            reading="How much content adds to the score of each token, compared with a mean key at "
            "its position. To the right of 0, a token gets more attention than by position alone; "
            "to the left, less. 0.7 nats is a factor of two. The bars need not be centred at 0: "
            "here every token counts once, but in the mean key frequent tokens weigh most.",
        ),
    ),
}

CLAIMS = {"contextual-heads": (duplicates, contextual)}
