"""What results about the sources of position show."""

import numpy as np

from poskernel_core.analyses.head_measures.claims import HALF, main_source, named_source
from poskernel_core.analyses.number import number_of, passing
from poskernel_core.analyses.position_sources.formulas import NOISY, POSITIONAL
from poskernel_core.analyses.position_sources.spec import KINDS
from poskernel_core.analyses.rules import Rules, by_chance, most, reach, said, who
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted


def finding(result: Result) -> str:
    """Say what a head reads its position from; empty if it supports no claim."""
    return said(result, RULES)


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
    """The component that makes more than half, or else the one that has most."""
    if why := nothing_to_explain(result):
        return why
    names = result.words("source")
    shares = [number_of(result, "share", place) for place in range(len(names))]
    if found := main_source(names, shares):
        return f"Most of {who(result)}'s positional score comes from {found[0]} ({found[1]})."
    top = most(result, "share")
    if top is None or shares[top[0]].surely(0) != "yes":
        return ""
    return (
        f"The largest share of {who(result)}'s positional score, {shares[top[0]]}, comes from "
        f"{named_source(names[top[0]])}."
    )


def _every(result: Result) -> str:
    """In how many heads one component makes more than half."""
    sure, known = (
        int(each.any(axis=-1).sum())
        for each in (passing(result, "share", HALF)[0], np.isfinite(result.values["share"]))
    )
    if not known:
        return "No shares are given for any head: none has a positional score to explain."
    return (
        f"Of {counted(known, 'head')} with a positional score, {sure or 'none'} "
        f"{'gets' if sure == 1 else 'get'} more than half of it from one "
        f"component{by_chance(known)}."
    )


def _kinds(result: Result) -> str:
    name = next(name for name in KINDS if name in result.values)
    what = f"a share of the positional score from {named_source(KINDS[name])}"
    return reach(result, name, HALF, what)


def _kind(result: Result) -> str:
    name = next(name for name in KINDS if name in result.values)
    share = number_of(result, name)
    how = {"yes": "Most", "no": "Less than half"}.get(share.surely(HALF) or "")
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
