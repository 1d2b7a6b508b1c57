"""What results about the anatomy of sinks show."""

from collections.abc import Iterator

import numpy as np

from poskernel_core.analyses.claims import (
    ALL_HEADS,
    EFFECT,
    WEAK,
    Claim,
    Head,
    Number,
    at_limit,
    has,
    heads_at,
    listed,
    number_of,
    param,
    spoken,
    told,
)
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted

FOLLOWS = {
    "standing_first": "what stands first",
    "position_zero": "position 0",
    "start_token": "the start token",
}
"""What a sink may follow, by the names of the effects."""

THROUGH = {"key_effect": "its key", "query_effect": "the queries after it"}


def finding(result: Result) -> str:
    """Say what the sink of a head follows, or how many sinks follow what."""
    if has(result, ALL_HEADS, *FOLLOWS, "sink"):
        return _heads(result)
    if not has(result, (), *FOLLOWS, *THROUGH, "sink"):
        return ""
    share = number_of(result, "sink")
    text = f"{{it}} gives the first key {share} of its attention"
    every = at_limit("sink", share, param(result, "threshold"), text, "a sink", "no sink", WEAK)
    less = [claim for claim in every if claim.passes != "yes"]
    none = told(result, (claim for claim in less if claim.passes == "no"))
    return none or spoken(follows)(result) or told(result, less)


def follows(head: Head) -> Iterator[Claim]:
    """Yield what a sink follows: effects on its share of attention."""
    effects = {name: head.number(name) for name in (*FOLLOWS, *THROUGH) if head.has(name)}
    up, down, flat = (
        {name: each for name, each in effects.items() if _side(each) == side} for side in (1, -1, 0)
    )
    largest = [up[name] for name in FOLLOWS if name in up]
    if not largest:
        return
    text = f"{{its}} sink follows {listed(_told(up, FOLLOWS))}"
    if rest := _told(flat, FOLLOWS):
        text += f", not {' nor '.join(rest)}"
    if less := _told(down, FOLLOWS):
        text += f", and less {listed(less)}"
    if "start_token" in up and (through := _told(up, THROUGH)):
        text += f", where the start token acts through {listed(through)}"
    yield Claim("sink follows", text, largest[0])


def _side(effect: Number) -> int | None:
    """Return 1 or -1 for an effect that is large, 0 for a small one, else None."""
    sides = effect.sign(-EFFECT), effect.sign(EFFECT)
    return {(1, 1): 1, (1, -1): 0, (-1, -1): -1}.get(sides)


def _told(effects: dict[str, Number], words: dict[str, str]) -> list[str]:
    """Return the effects that have words, each with its signed number."""
    return [
        f"{words[name]} ({'+' if each.value > 0 else ''}{each})"
        for name, each in effects.items()
        if name in words
    ]


def _heads(result: Result) -> str:
    count = int(np.isfinite(result.values["standing_first"]).sum())
    if not count:
        return heads_at(result, "sink", "attention to the first key", param(result, "threshold"))
    known = [name for name in FOLLOWS if np.isfinite(result.values[name]).any()]
    sure = {name: discovered(result, Condition(name, EFFECT)).count for name in known}
    if not any(sure.values()):
        return ""
    parts = [f"{FOLLOWS[name]} in {sure[name] or 'none'}" for name in known]
    return (
        f"Among {counted(count, 'head')} with a sink, it follows "
        f"{', '.join(parts)} (effect {EFFECT:g} or more)."
    )


CLAIMS = {"sink-anatomy": (follows,)}
