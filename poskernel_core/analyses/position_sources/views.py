"""What is drawn and said of the sources of position."""

from collections.abc import Iterator

import numpy as np

from poskernel_core.analyses.claims import (
    HALF,
    Claim,
    Head,
    heads_at,
    most,
    number_of,
    passing,
    spoken,
    who,
)
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.position_sources.figures import (
    bars_figure,
    list_figure,
    map_figure,
    turning_figure,
)
from poskernel_core.analyses.position_sources.formulas import NOISY, POSITIONAL
from poskernel_core.analyses.position_sources.spec import KINDS
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted


def _nothing_to_explain(result: Result) -> str:
    """Say why one head's shares are not given; empty if they are."""
    if np.isfinite(result.values["share"]).any():
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
    if why := _nothing_to_explain(result):
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
    sure, known = (int(mask.any(axis=-1).sum()) for mask in shares)
    if not known:
        return "No shares are given for any head: none has a positional score to explain."
    if not (sure or passing(result, "share", HALF)[1][shares[1]].all()):
        return ""
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


ONE_HEAD = (
    View("share [component], noise position_share []", says=_head),
    View(
        "share equal_share [component]",
        bars_figure,
        reading="The positional score of a head is a sum over the parts of the model that wrote "
        "into the stream before it. Bars on the left: the share of each part, lowest layer first; "
        "parts below 0 work against the others, and all shares add up to 1. Ticks: the same with "
        "all visible keys weighted alike, not by the kernel. On the right: how far the kernel "
        "moves when the part is taken out of the keys; these distances do not add up. Parts are "
        "direct writers, no origins: an MLP may only pass on what it read of the positional "
        "embedding. Error bars: one s.e.",
    ),
)

VIEWS: Views = {
    "position-sources": (
        View(
            "share [layer head component]",
            list_figure,
            says=_every,
            reading="The largest shares of all heads, each a head and a part of the model that it "
            "reads position from. Error bars: one s.e. As a graph, layers go upwards. An edge "
            "joins a part of the model with a head that reads position from it; thick edges are "
            "shares of 0.5 or more, thin ones less than 0.25. Heads without an edge have no share "
            "that large, or no positional score to explain. Hover over a head for its sources. "
            "Squares on the right are MLPs; embeddings and constants stand below. A click selects "
            "the head.",
        ),
        *ONE_HEAD,
        *(View(f"{name} [layer head]", says=_kinds) for name in KINDS),
        *(View(f"{name} []", says=_kind) for name in KINDS),
    ),
    "head-position-sources": (
        *ONE_HEAD,
        View(
            "share effect [component], score [component offset]",
            map_figure,
            reading="What each part adds to the score of the key at each offset, less its mean "
            "over the head's kernel, since the softmax ignores a constant. Orange raises "
            "attention, blue lowers it. The columns' sums, over all parts, also those that are not "
            "shown, are the positional score. The query position is that of the sidebar.",
        ),
        View(
            "share turned_share place_share [component]",
            turning_figure,
            reading="In a rotary model keys are turned by their position. So even a key that is "
            "the same everywhere gives a positional score. Each share is split in two: the part's "
            "mean key over all positions, turned (*supplies the constant key*), and how its key "
            "changes from position to position before it is turned (*knows its place*).",
        ),
    ),
}

CLAIMS = {"position-sources": (main_source,)}
