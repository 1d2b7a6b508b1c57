"""What is drawn and said of one text; its numbers have no errors."""

from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from poskernel_core.analyses.claims import ATTENTION, HALF, heads_at, number_of, of_all, who
from poskernel_core.analyses.own_text.figures import all_heads, one_head, one_row
from poskernel_core.analyses.pictures import heads
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted
from poskernel_core.common.specs import BAND

ABOVE: Final = "above 1, since content works against position"


def _heads(result: Result) -> str:
    said = heads_at(result, "position_share", "share of position in this text's scores", HALF)
    above = _above(np.nan_to_num(result.values["position_share"]).max())
    return f"{said.removesuffix('.')}{above}." if said and above else said


def _above(share: float) -> str:
    """Return why a share is above 1, if it is so as printed."""
    return f" ({ABOVE})" if float(f"{share:.3g}") > 1 else ""


def _shares(result: Result) -> str:
    """Whether position or content decides a head's scores, on the text or for one token."""
    shares = [number_of(result, f"{what}_share") for what in ("position", "content")]
    if any(np.isnan(share.value) for share in shares):
        return ""
    position, content = shares
    decides = position.sign(HALF) > 0
    above = _above(max(position.value, content.value))
    where = f" at token {result.chosen['query']}" if "query" in result.chosen else " on this text"
    return (
        f"Position explains {position} of the variance of {who(result)}'s scores{where}, "
        f"{'more' if decides else 'less'} than half; content explains {content}{above}."
    )


def _queries(result: Result) -> str:
    """At how many tokens position explains half of the variance."""
    shares = result.values["position_share"]
    known, sure = int(np.isfinite(shares).sum()), int((shares > HALF).sum())
    if not known:
        return ""
    return (
        f"At {of_all(sure, known, 'token').lower()} of this text, position explains more than half "
        f"of the variance of {who(result)}'s scores."
    )


def _pattern(result: Result) -> str:
    """The distance, or the first key, that gets most of a head's attention."""
    pattern = result.values["pattern"]
    first = int(result.coordinates["query"][0]) if "query" in result.coordinates else 0
    keys = pattern.shape[1]
    if keys < 2:
        return ""
    # at offset k, the queries from max(1, k) on
    means = {
        ("the token itself" if k == 0 else f"the token {counted(k, 'place')} back"): float(
            pattern[max(0, max(1, k) - first) :].diagonal(max(first, max(1, k)) - k).mean()
        )
        for k in range(min(BAND, keys // 2) + 1)
    }
    means["key 0"] = float(pattern[max(0, 1 - first) :, 0].mean())
    top = max(means, key=lambda place: means[place])
    if means[top] < ATTENTION:
        return (
            f"On this text {who(result)} gives neither key 0 nor any distance up to "
            f"{len(means) - 2} {ATTENTION:g} of its attention: {top} gets most, "
            f"{brief(means[top])}."
        )
    return (
        f"On this text {who(result)} gives {brief(means[top])} of its attention to {top} (limit "
        f"{ATTENTION:g}), as a mean over the tokens."
    )


ONE_HEAD = View(
    "pattern [query key]",
    one_head,
    reading="Left: the head's pattern, queries from top to bottom; point at a cell to read its "
    "share. Right: the text. Point at a token, or move with the arrow keys, to shade the tokens it "
    "attends to (*outgoing*) or that attend to it (*incoming*). *Lines* shows the tokens twice, "
    "queries left and keys right, with lines that are the wider the larger the share. A click, or "
    "Enter, selects the token as the query of the figure below; the selected token is underlined.",
)
VIEWS: Views = {
    "own-text": (
        View("position_share [layer head]", says=_heads),
        View("position_share content_share []", says=_shares),
        ONE_HEAD,
        View(
            "pattern [layer head query key]",
            all_heads,
            reading="One small map per head: queries from top to bottom, keys from left to right; "
            "the fuller the blue, the more attention. All heads share the scale, which one cell in "
            "a hundred exceeds. The orange bar below each map is the share of the head's score "
            "variance that position explains on this text. In a long text a cell stands for "
            "several tokens. Click a map, or move with the arrow keys and press Enter, to select "
            "that head on all pages.",
            explains="position_share",
        ),
        View(
            "pattern [layer head]",
            partial(heads, name="pattern"),
            "Attention from token {query} to token {key}",
            reading="The ten heads that give the key token most of the query token's attention.",
        ),
    ),
    "own-text-head": (
        View("position_share content_share []", says=_shares),
        View(
            "score position content pattern kernel [key]",
            one_row,
            reading="Above: the score of every key for the chosen query, as an exact sum of two "
            "parts: the score of a mean key at that position (blue) and the effect of this text "
            "(orange); diamonds are the sum. Scores are centred, as the softmax ignores their "
            "mean. Below: the positional kernel (the softmax of the blue part) and the observed "
            "attention. Where the two agree, position decides; where they differ, content does. "
            "Kernel and attention leave out the skipped first keys and are normalised over the "
            "rest.",
        ),
        View("position_share [query]", says=_queries),
        replace(ONE_HEAD, says=_pattern),
    ),
}
