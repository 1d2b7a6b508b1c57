"""What heads do on one text, in a sentence; numbers of one text have no errors."""

from typing import Final

import numpy as np

from poskernel_core.analyses.claims import (
    ATTENTION,
    HALF,
    Rules,
    heads_at,
    number_of,
    of_all,
    said,
    who,
)
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted
from poskernel_core.common.specs import BAND


def finding(result: Result) -> str:
    """Return what heads do on one text; empty if it supports no claim."""
    return said(result, RULES)


ABOVE: Final = "above 1, since content works against position"


def _heads(result: Result) -> str:
    said = heads_at(result, "position_share", "share of position in this text's scores", HALF)
    above = np.nan_to_num(result.values["position_share"]).max() > 1
    return f"{said.removesuffix('.')} ({ABOVE})." if said and above else said


def _shares(result: Result) -> str:
    """Whether position or content decides a head's scores, on the text or for one token."""
    shares = [number_of(result, f"{what}_share") for what in ("position", "content")]
    if any(np.isnan(share.value) for share in shares):
        return ""
    position, content = shares
    decides = position.sign(HALF) > 0
    above = f" ({ABOVE})" if max(position.value, content.value) > 1 else ""
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


RULES: Rules = {
    "own-text: position_share [layer head]": _heads,
    "own-text: position_share content_share []": _shares,
    "own-text-head: position_share content_share []": _shares,
    "own-text-head: position_share [query]": _queries,
    "own-text-head: pattern [query key]": _pattern,
}
