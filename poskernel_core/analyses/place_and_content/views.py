"""What is drawn and said of the shares of place, content, and both together."""

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
from poskernel_core.analyses.pictures import named_lines
from poskernel_core.analyses.place_and_content.formulas import SHARES
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.result import Result

PARTS = dict(zip(SHARES, ("place", "content", "only place and content together"), strict=False))
NAMES = {
    "place_share": "place",
    "content_share": "content",
    "both_share": "both together",
    "covariance_share": "covariance in real scores",
}
UNIT = "share of variance, all keys at all places"


def _most(result: Result) -> str:
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


VIEWS: Views = {
    "place-and-content": (
        View(
            f"{' '.join(NAMES)} [query]",
            partial(named_lines, names=NAMES, over="query", unit=UNIT),
            "what decides the scores",
            reading="What would decide the scores if every key stood at every place: the place, "
            "whatever the key; the key (content), wherever it stands; or only both together, as "
            "where a key counts only at its own distance. These three add up to 1. The covariance, "
            "besides them, says how far place and content go together in the real text. «Place "
            "share» is not how far attention is decided by position: scores of keys that no head "
            "attends to count as much as any others.",
        ),
        *(View(f"{part} [...]", says=_most) for part in PARTS),
    ),
}

CLAIMS = {"place-and-content": (partial(explains, "both_share"),)}
