"""What is drawn and said of score variance."""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from poskernel_core.analyses.claims import (
    HALF,
    Claim,
    Head,
    Number,
    at_last,
    heads_at,
    number_of,
    passing,
    spoken,
    who,
)
from poskernel_core.analyses.pictures import named_lines
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted

PARTS = ("position", "content")
NAMES = {
    "position_share": "position",
    "content_share": "content",
    "covariance_share": "twice the covariance",
}


def _most(result: Result) -> str:
    """Say whether position or content explains most of the score variance."""
    parts = [part for part in PARTS if f"{part}_share" in result.values]
    if not parts:
        return ""
    match result.axes[f"{parts[0]}_share"]:
        case ():
            return spoken(scores)(result)
        case ("query",):
            return next(filter(None, (_along(result, part) for part in parts)), "")
    last = at_last(result)
    every = (
        heads_at(last, f"{part}_share", f"share of score variance explained by {part}", HALF)
        for part in parts
    )
    return next(filter(None, every), "")


def scores(head: Head) -> Iterator[Claim]:
    """Yield which of position and content explains more than half of the score variance."""
    shares = {part: head.number(f"{part}_share") for part in PARTS if head.has(f"{part}_share")}
    for part, share in shares.items():
        if share.passes(HALF) == "yes":
            text = (
                f"{part} explains {_share(part, share)} of the variance of {{its}} scores over keys"
            )
            yield Claim("scores", text, share)
            return
    if len(shares) == len(PARTS) and not any(
        math.isnan(number.value) for number in shares.values()
    ):
        position, content = shares.values()
        text = f"position ({position}) and content ({content}) share the variance of {{its}} scores"
        most = max(shares.values(), key=lambda share: share.value)
        yield Claim("scores", text, most, passes="yes" if most.passes(HALF) == "no" else "about")


def _share(part: str, share: Number) -> str:
    """Return a share as text; why it is above 1, if it is."""
    if share.value <= 1:
        return str(share)
    (other,) = {*PARTS} - {part}
    return "1 (within its error)" if share.low <= 1 else f"{share} (above 1: {other} opposes it)"


def _along(result: Result, part: str) -> str:
    name = f"{part}_share"
    sure, known = passing(result, name, HALF)[0], np.isfinite(result.values[name])
    if 2 * sure.sum() <= known.sum():
        return ""
    best = int(np.nanargmax(np.where(sure, result.values[name], np.nan)))
    number, query = number_of(result, name, best), result.coordinates["query"][best]
    return (
        f"{part.capitalize()} explains more than half of the score variance of "
        f"{who(result)} at {sure.sum()} of {counted(int(known.sum()), 'query position')}, "
        f"most at n = {query} ({number})."
    )


VIEWS: Views = {
    "score-variance": (
        View(
            "position_share content_share covariance_share [query]",
            partial(named_lines, names=NAMES, over="query", unit="share of the score variance"),
            "score variance explained",
            reading="What makes one key score higher than another, for each query position: its "
            "position, its content, or their covariance (below 0 if they work against each other). "
            "The three add up to 1.",
        ),
        View("position_share [...]", says=_most),
        View("content_share [...]", says=_most),
    ),
}

CLAIMS = {"score-variance": (scores,)}
