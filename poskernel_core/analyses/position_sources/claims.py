"""What results about the sources of position show."""

from collections.abc import Iterator

import numpy as np

from poskernel_core.analyses.claims import (
    HALF,
    Claim,
    Head,
    Rules,
    heads_at,
    most,
    number_of,
    spoken,
    who,
)
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.position_sources.formulas import NOISY, POSITIONAL
from poskernel_core.analyses.position_sources.spec import KINDS
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted


def nothing_to_explain(result: Result) -> str:
    """Say why one head's shares are not given; empty if they are, or if that is not known."""
    if {"noise", "position_share"} - result.values.keys() or result.axes["noise"]:
        return ""
    noise, position = (float(result.values[name]) for name in ("noise", "position_share"))
    if noise <= NOISY and position >= POSITIONAL:
        return ""
    why = f"{brief(noise)} of its positional score is noise of the mean keys (limit {NOISY:g})"
    if np.isnan(noise) or np.isnan(position):
        why = "its positional score is the same for all keys"
    elif position < POSITIONAL:
        why = f"position explains {brief(position)} of its score variance (limit {POSITIONAL:g})"
    return f"No shares are given for {who(result)}: with these texts, {why}."


def _head(result: Result) -> str:
    if why := nothing_to_explain(result):
        return why
    if main := spoken(main_source)(result):
        return main
    top = most(result, "share")
    if top is None or (share := number_of(result, "share", *top)).passes(0) != "yes":
        return ""
    return (
        f"The largest share of {who(result)}'s positional score, {share}, comes from "
        f"{named_source(result.words('source')[top[0]])}."
    )


def main_source(head: Head) -> Iterator[Claim]:
    """Yield the one component that makes more than half of a head's score, if no other may."""
    value, low, high = head.result.estimate_of("share", *head.place)
    if (low >= HALF).sum() == 1 == (high >= HALF).sum() + (np.isnan(low) & (value >= HALF)).sum():
        place = int(np.argmax(low >= HALF))
        source, share = head.result.words("source")[place], head.number("share", place)
        text = f"most of {{its}} positional score comes from {named_source(source)} ({share})"
        yield Claim("sources", text, share)


def named_source(name: str) -> str:
    """Return a component's name as sentences give it: ``the positional embedding``, ``L0H3``."""
    return f"the {name}" if name.endswith(("embedding", "constant", "biases")) else name


def _every(result: Result) -> str:
    shares = discovered(result, Condition("share", HALF)).sure, np.isfinite(result.values["share"])
    sure, known = (int(each.any(axis=-1).sum()) for each in shares)
    if not known:
        return "No shares are given for any head: none has a positional score to explain."
    return (
        f"Of {counted(known, 'head')} with a positional score, {sure or 'none'} "
        f"{'gets' if sure == 1 else 'get'} more than half of it from one component."
    )


def _kinds(result: Result) -> str:
    name = next(name for name in KINDS if name in result.values)
    what = f"share of the positional score from {named_source(KINDS[name])}"
    return heads_at(result, name, what, HALF)


def _kind(result: Result) -> str:
    name = next(name for name in KINDS if name in result.values)
    share = number_of(result, name)
    how = {"yes": "Most", "no": "Less than half"}.get(share.passes(HALF) or "")
    source = named_source(KINDS[name])
    return (
        f"{how} of {who(result)}'s positional score comes from {source} ({share})." if how else ""
    )


RULES: Rules = {
    "position-sources: share [layer head component]": _every,
    "position-sources: share [component], noise position_share []": _head,
    "head-position-sources: share [component], noise position_share []": _head,
    **{f"position-sources: {name} [layer head]": _kinds for name in KINDS},
    **{f"position-sources: {name} []": _kind for name in KINDS},
}

CLAIMS = {"position-sources": (main_source,)}
