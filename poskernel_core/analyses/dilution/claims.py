"""What results about dilution and longer contexts show."""

from collections.abc import Iterator

import numpy as np

from poskernel_core.analyses.claims import (
    ALL_HEADS,
    HALF,
    SCALE,
    Claim,
    Head,
    has,
    heads_at,
    number_of,
    of_all,
    param,
    passing,
    spoken,
    who,
)
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted

KEEPS, SPREADS = 0.25, 0.75
"""Slopes of log ETC on log keys: below the first a head keeps its reach, from the second on it
spreads over all visible keys."""

ALIKE = 0.1
"""Distance below which kernels count as nearly the same."""


def finding(result: Result) -> str:
    """Return what a result about dilution or longer contexts shows."""
    return _dilution(result) if result.analysis == "dilution" else _longer(result)


def reach(head: Head) -> Iterator[Claim]:
    """Yield whether a kernel keeps its reach, or spreads over all visible keys."""
    slope, upper = (head.number(name) for name in ("alpha", "alpha_upper"))
    keeps = {slope.passes(KEEPS), upper.passes(KEEPS)} == {"no"}
    if keeps or {slope.passes(SPREADS), upper.passes(SPREADS)} == {"yes"}:
        does = "keeps its reach" if keeps else "spreads over all there is"
        text = f"{{it}} {does} as more keys become visible: the slopes are {slope} and {upper}"
        yield Claim("reach", f"{text} (upper half)", slope)


def _dilution(result: Result) -> str:
    at = result.provenance.get("query_range")
    start = f"From n = {at[0]} to {at[1]}" if at else "As more keys become visible"
    if has(result, (), "alpha", "alpha_upper"):
        if said := spoken(reach)(result):
            return said
        reason = str(result.texts["no_slope"]) if "no_slope" in result.texts else ""
        return f"{who(result)} has no slope: {reason}." if reason else ""
    if not has(result, ALL_HEADS, "alpha", "alpha_upper"):
        return ""
    (over, under), (upper_over, upper_under) = (
        (passing(result, name, SPREADS)[0], passing(result, name, KEEPS)[1])
        for name in ("alpha", "alpha_upper")
    )
    keep, spread = int((under & upper_under).sum()), int((over & upper_over).sum())
    known = int(np.isfinite(result.values["alpha"]).sum())
    if not keep and not spread:
        return ""
    return (
        f"{start}, both slopes are below {KEEPS:g} in "
        f"{of_all(keep, known).lower()}, which keep their reach, and {SPREADS:g} or more in "
        f"{spread or 'none'}, which spread over all there is."
    )


def _longer(result: Result) -> str:
    length = counted(param(result, "length"), "token")
    if has(result, (), "longest_distance"):
        number = number_of(result, "longest_distance")
        how = {"yes": "another kernel", "no": ""}.get(number.passes(HALF) or "", "")
        how = "nearly the same kernel" if number.passes(ALIKE) == "no" else how
        if not how:
            return ""
        return (
            f"In the longest context, with its own angles, {who(result)} has {how}: {number} from "
            f"that at {length} ({SCALE})."
        )
    if has(result, ALL_HEADS, "longest_distance"):
        noun = f"distance of the kernel in the longest context (own angles) to that at {length}"
        return heads_at(result, "longest_distance", noun, ALIKE)
    return _loss(result, length)


def _loss(result: Result, length: str) -> str:
    """Say how the loss changes in the longest context, for the scalings where it does."""
    if not has(result, ("scaling", "factor"), "loss_change"):
        return ""
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
        f"The loss of the same last tokens, in the longest context against one of {length}: "
        f"{', '.join(said)}."
    )


CLAIMS = {"dilution": (reach,)}
