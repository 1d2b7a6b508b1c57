"""What results about previous-token heads, and the stages of attention, show."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from poskernel_core.analyses.claims import (
    ATTENTION,
    Claim,
    Head,
    Number,
    Rules,
    heads_at,
    number_of,
    param,
    spoken,
    told,
    who,
)
from poskernel_core.analyses.kernels.claims import look_back, profile_said
from poskernel_core.analyses.previous_token.spec import DIAGONALS
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief


def _other(result: Result) -> str:
    if "previous_mass" in result.values:
        return heads_at(result, "previous_mass", "attention to the previous token", ATTENTION)
    if "ratio" in result.values:
        noun = "second diagonal over the largest"
        return heads_at(result, "ratio", noun, param(result, "clean"), below=True)
    return profile_said(result)


HOW = {
    "by position": " by position",
    "negative self-attention": " by negative self-attention",
    "aggregator": ", at what earlier heads wrote there",
}


def largest(head: Head) -> Iterator[Claim]:
    """Yield the diagonal that takes most of a head's attention, and how it comes about."""
    mass, back = head.number("largest_mass"), head.number("largest_offset").value
    if math.isnan(mass.value):
        return
    (claim,) = look_back(int(back), mass, HOW.get(head.word("kind") or "", "") if back else "")
    if claim.passes == "no" and (diagonal := head.word("diagonal")) not in (None, DIAGONALS[-1]):
        claim = replace(claim, fails=f"{claim.fails}, with a {diagonal} in the scores")
    yield claim


def _contrast(result: Result) -> str:
    """Say whether a diagonal of the raw scores is dark or bright.

    As where heads are classified, it must also exceed some standard errors, and be the larger one.
    """
    own, previous = (number_of(result, f"{name}_contrast") for name in ("self", "previous"))
    dark = -own.value >= previous.value
    name = "self_contrast" if dark else "previous_contrast"
    number, verb = (own, "below") if dark else (previous, "above")
    size = -number.value if dark else number.value
    passes = number.passes(0)
    noise = param(result, "errors") * float(result.errors[name])
    if passes != ("no" if dark else "yes") or size <= noise:
        return ""
    token = "the current token itself" if dark else "the previous token"
    return (
        f"On average {who(result)} scores {token} {brief(size)} nats {verb} the straight line "
        "through the scores of the next token and of the one two back."
    )


def _stages(result: Result) -> str:
    pattern, head = result.values["pattern"].astype(float), who(result)
    inner = pattern[1:, 1:]  # without the start token, as in profiles
    if len(inner) < 2:
        return ""
    masses = [float(np.diagonal(inner, -back).mean()) for back in range(len(inner) // 2 + 1)]
    back = int(np.argmax(masses))
    first = float(pattern[1:, 0].mean())
    if max(masses[back], first) < ATTENTION:
        return ""
    if first > masses[back]:
        return f"{head} gives the first key {brief(first)} of its attention on this text."
    return told(result, look_back(back, Number.within(masses[back], 0.0), " on this text"))


RULES: Rules = {
    "stages: pattern [query key]": _stages,
    "previous-token: largest_mass largest_offset []": spoken(largest),
    "previous-token: self_contrast previous_contrast []": _contrast,
    "previous-token": _other,
}

CLAIMS = {"previous-token": (largest,)}
