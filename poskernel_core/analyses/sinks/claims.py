"""What results about attention sinks show."""

from collections.abc import Iterator

from poskernel_core.analyses.claims import (
    WEAK,
    Claim,
    Head,
    Number,
    at_limit,
    heads_at,
    number_of,
    param,
    spoken,
    told,
)
from poskernel_core.common.result import Result

NOUNS = {"sink": "attention to the first key", "learned_sink": "mass on the learned sink"}


def finding(result: Result) -> str:
    """Say whether a head has a sink, or how many heads have one."""
    if result.axes.get("alpha") == ("key",):
        return told(result, _first(Head(result), number_of(result, "alpha", 0)))
    if result.axes.get("sink") == ():
        return spoken(learned, first)(result)
    name = next(name for name in (*NOUNS, *result.values) if name in result.values)
    return heads_at(result, name, NOUNS[name], param(result, "threshold")) if name in NOUNS else ""


def first(head: Head) -> Iterator[Claim]:
    """Yield whether the first key is a sink."""
    return _first(head, head.number("sink"))


def _first(head: Head, share: Number) -> Iterator[Claim]:
    text = f"{{it}} gives the first key {share} of its attention"
    return at_limit("sink", share, head.param("threshold"), text, "a sink", "no sink", WEAK)


def learned(head: Head) -> Iterator[Claim]:
    """Yield a learned sink, if a head has one."""
    if head.has("learned_sink"):
        share = head.number("learned_sink")
        text = f"{{it}} gives {share} of its attention to a learned sink"
        every = at_limit("learned sink", share, head.param("threshold"), text, "")
        yield from (claim for claim in every if claim.passes == "yes")


CLAIMS = {"sinks": (first, learned)}
