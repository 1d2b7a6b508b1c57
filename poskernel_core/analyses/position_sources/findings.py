"""What results about the sources of position show."""

import numpy as np

from poskernel_core.analyses.head_measures.claims import HALF
from poskernel_core.analyses.number import number_of
from poskernel_core.analyses.position_sources.formulas import NOISY, POSITIONAL
from poskernel_core.analyses.position_sources.spec import KINDS
from poskernel_core.analyses.rules import Rules, most, reach, said, who
from poskernel_core.common.result import Result


def finding(result: Result) -> str:
    """Say what a head reads its position from; empty if it supports no claim."""
    return said(result, RULES)


def nothing_to_explain(result: Result) -> str:
    """Say why one head's shares are not given; empty if they are, or if that is not known."""
    if {"noise", "position_share"} - result.values.keys() or result.axes["noise"]:
        return ""
    noise, position = (float(result.values[name]) for name in ("noise", "position_share"))
    if position < POSITIONAL:
        return (
            f"{who(result)} has no positional score to explain: position explains less than "
            f"{POSITIONAL:g} of the variance of its scores."
        )
    if noise > NOISY:
        return (
            f"The sources of {who(result)}'s position are not known: more than half of its "
            "positional score is noise of these few texts."
        )
    return ""


def _head(result: Result) -> str:
    """The component that certainly has most, and whether that is more than half."""
    if why := nothing_to_explain(result):
        return why
    top = most(result, "share")
    if top is None:
        return ""
    share, name = number_of(result, "share", *top), result.words("source")[top[0]]
    if share.surely(HALF) == "yes":
        return f"Most of {who(result)}'s positional score comes from {named(name)} ({share})."
    if share.surely(0) != "yes":
        return ""
    return (
        f"The largest share of {who(result)}'s positional score, {share}, comes from {named(name)}."
    )


def named(source: str) -> str:
    """Return a component's name as sentences give it: ``the positional embedding``, ``L0H3``."""
    return f"the {source}" if source.endswith(("embedding", "constant", "biases")) else source


def _every(result: Result) -> str:
    """In how many heads one component certainly makes more than half."""
    share = result.values["share"]
    error, bias = result.errors["share"], np.nan_to_num(result.biases.get("share", 0 * share))
    with np.errstate(invalid="ignore"):
        sure = share - bias - result.interval * error >= HALF
    known = int(np.isfinite(share).any(axis=-1).sum())
    if not known:
        return "No head has a positional score to explain with these texts."
    count = int(sure.any(axis=-1).sum())
    return (
        f"Of {known} heads with a positional score, {count or 'none'} certainly "
        f"{'gets' if count == 1 else 'get'} more than half of it from one component."
    )


def _kinds(result: Result) -> str:
    name = next(name for name in KINDS if name in result.values)
    what = f"a share of the positional score from {named(KINDS[name])}"
    return reach(result, name, HALF, what)


def _kind(result: Result) -> str:
    name = next(name for name in KINDS if name in result.values)
    share = number_of(result, name)
    match share.surely(HALF):
        case "yes":
            return f"Most of {who(result)}'s positional score is of {KINDS[name]} ({share})."
        case "no":
            return (
                f"Less than half of {who(result)}'s positional score is of {KINDS[name]} ({share})."
            )
    return ""


RULES: Rules = {
    "position-sources: share [layer head component]": _every,
    "position-sources: share [component]": _head,
    "head-position-sources: share [component]": _head,
    **{f"position-sources: {name} [layer head]": _kinds for name in KINDS},
    **{f"position-sources: {name} []": _kind for name in KINDS},
}
