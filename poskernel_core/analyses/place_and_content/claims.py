"""What results about place and content show."""

from collections.abc import Iterator
from functools import partial

from poskernel_core.analyses.claims import (
    HALF,
    Claim,
    Head,
    at_last,
    has,
    heads_at,
    passing,
    spoken,
)
from poskernel_core.analyses.place_and_content.formulas import SHARES
from poskernel_core.common.result import Result

PARTS = dict(zip(SHARES, ("place", "content", "only place and content together"), strict=False))


def finding(result: Result) -> str:
    """Say which part explains more than half of the score variance, if one does."""
    result = at_last(result)
    parts = [name for name in PARTS if name in result.values]
    if not parts:
        return ""
    if has(result, (), *parts):
        return spoken(*(partial(explains, name) for name in parts))(result)
    most = max(parts, key=lambda name: int(passing(result, name, HALF)[0].sum()))
    return heads_at(result, most, f"share of score variance explained by {PARTS[most]}", HALF)


def explains(name: str, head: Head) -> Iterator[Claim]:
    """Yield whether a part explains more than half."""
    if (share := head.number(name)).passes(HALF) == "yes":
        text = f"if every key stood at every place, {PARTS[name]} would explain {share} of the "
        yield Claim("place and content", f"{text}variance of {{its}} scores", share)


CLAIMS = {"place-and-content": (partial(explains, "both_share"),)}
