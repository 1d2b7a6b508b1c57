"""What results about additivity show."""

from poskernel_core.analyses.claims import (
    HALF,
    capital,
    has,
    heads_at,
    heads_range,
    number_of,
    passing,
    who,
)
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted

PARTS = {
    "position_share": "position",
    "content_share": "content",
    "interaction_share": "the interaction of position and content",
}


def finding(result: Result) -> str:
    """Say which part explains most of the keys' variance, or how far content stays the same."""
    parts = [name for name in PARTS if name in result.values]
    if not parts:
        return _similarity(result)
    if has(result, (), *parts):
        for name in parts:
            if (share := number_of(result, name)).passes(HALF) == "yes":
                return (
                    f"{capital(PARTS[name])} explains {share} of the variance of the keys "
                    f"of {who(result)}, more than half."
                )
        return ""
    most = max(parts, key=lambda name: int(passing(result, name, HALF)[0].sum()))
    return heads_at(result, most, f"share of key variance explained by {PARTS[most]}", HALF)


def _similarity(result: Result) -> str:
    name = "content_similarity"
    if "shift" in result.coordinates:
        result = result.select(shift=int(result.coordinates["shift"][-1]))
    shift = result.chosen["shift"]
    if not has(result, (), name):
        noun = f"content similarity at a shift of {counted(shift, 'token')}"
        return heads_range(result, name, noun)
    cosine = number_of(result, name)
    if cosine.passes(0) not in ("yes", "no") or cosine.value == 0:
        return ""
    return (
        f"Moved by {counted(shift, 'token')}, the content in the keys of {who(result)} has a "
        f"cosine of {cosine} with itself (1: unchanged, 0: unrelated)."
    )
