"""What is drawn and said of attention to the first keys."""

from collections.abc import Iterator

import plotly.graph_objects as go

from poskernel_core.analyses.claims import (
    WEAK,
    Claim,
    Head,
    Number,
    at_limit,
    number_of,
    spoken,
    told,
)
from poskernel_core.analyses.pictures import named_lines
from poskernel_core.analyses.views import View, Views, heads_view
from poskernel_core.common.result import Result


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


def _first_keys(head: Result) -> go.Figure:
    names, unit = {"alpha": "mean attention"}, "mean attention to it (share)"
    return named_lines(head, names, over="key", unit=unit).update_yaxes(rangemode="tozero")


VIEWS: Views = {
    "sinks": (
        View(
            "alpha [key]",
            _first_keys,
            "attention to the first keys",
            says=lambda result: told(result, _first(Head(result), number_of(result, "alpha", 0))),
            reading="Mean attention to each of the first eight keys. A high first point is an "
            "attention sink. The skip in the sidebar has no effect here.",
        ),
        View("sink []", says=spoken(learned, first)),
        heads_view("sink", "attention to the first key", "threshold"),
        heads_view("learned_sink", "mass on the learned sink", "threshold"),
    ),
}

CLAIMS = {"sinks": (first, learned)}
