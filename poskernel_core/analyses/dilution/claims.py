"""What results about dilution and longer contexts show."""

from collections.abc import Iterator

import numpy as np

from poskernel_core.analyses.claims import (
    HALF,
    SCALE,
    Claim,
    Head,
    Rules,
    heads_at,
    number_of,
    of_all,
    param,
    spoken,
    who,
)
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted

KEEPS, SPREADS = 0.25, 0.75
"""Slopes of log ETC on log keys: below the first a head keeps its reach, from the second on it
spreads over all visible keys."""

ALIKE = 0.1
"""Distance below which kernels count as nearly the same."""


def reach(head: Head) -> Iterator[Claim]:
    """Yield whether a kernel keeps its reach, or spreads over all visible keys."""
    slope, upper = (head.number(name) for name in ("alpha", "alpha_upper"))
    keeps = {slope.passes(KEEPS), upper.passes(KEEPS)} == {"no"}
    if keeps or {slope.passes(SPREADS), upper.passes(SPREADS)} == {"yes"}:
        does = "keeps its reach" if keeps else "spreads over all there is"
        text = f"{{it}} {does} as more keys become visible: the slopes are {slope} and {upper}"
        yield Claim("reach", f"{text} (upper half)", slope)


def _head(result: Result) -> str:
    reason = str(result.texts.get("no_slope", ""))
    no_slope = f"{who(result)} has no slope: {reason}." if reason else ""
    return spoken(reach)(result) or no_slope


def _heads(result: Result) -> str:
    at = result.provenance.get("query_range")
    start = f"From n = {at[0]} to {at[1]}" if at else "As more keys become visible"
    slopes = "alpha", "alpha_upper"
    keep = discovered(result, *(Condition(name, KEEPS, "below") for name in slopes)).count
    spread = discovered(result, *(Condition(name, SPREADS) for name in slopes)).count
    known = int(np.isfinite(result.values["alpha"]).sum())
    if not keep and not spread:
        return ""
    return (
        f"{start}, both slopes are below {KEEPS:g} in "
        f"{of_all(keep, known).lower()}, which keep their reach, and {SPREADS:g} or more in "
        f"{spread or 'none'}, which spread over all there is."
    )


def _length(result: Result) -> str:
    return counted(param(result, "length"), "token")


def _longer(result: Result) -> str:
    number = number_of(result, "longest_distance")
    how = "another kernel" if number.passes(HALF) == "yes" else ""
    how = "nearly the same kernel" if number.passes(ALIKE) == "no" else how
    if not how:
        return ""
    return (
        f"In the longest context, with its own angles, {who(result)} has {how}: {number} from "
        f"that at {_length(result)} ({SCALE})."
    )


def _all_longer(result: Result) -> str:
    at = _length(result)
    noun = f"distance of the kernel in the longest context (own angles) to that at {at}"
    return heads_at(result, "longest_distance", noun, ALIKE)


def _loss(result: Result) -> str:
    last = result.values["loss_change"].shape[1] - 1
    changes = {
        name: number_of(result, "loss_change", place, last)
        for place, name in enumerate(result.words("scaling"))
    }
    said = [
        f"{number.value:+.2g} nats ({name} angles)"
        for name, number in changes.items()
        if number.passes(0) in ("yes", "no")
    ]
    if not said:
        return ""
    return (
        f"The loss of the same last tokens, in the longest context against one of "
        f"{_length(result)}: {', '.join(said)}."
    )


RULES: Rules = {
    "dilution: alpha alpha_upper []": _head,
    "dilution: alpha alpha_upper [layer head]": _heads,
    "longer-contexts: longest_distance []": _longer,
    "longer-contexts: longest_distance [layer head]": _all_longer,
    "longer-contexts: loss_change [scaling factor]": _loss,
}

CLAIMS = {"dilution": (reach,)}
