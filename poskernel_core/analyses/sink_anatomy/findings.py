"""What results about the anatomy of sinks show."""

import numpy as np

from poskernel_core.analyses.head_measures.claims import EFFECT, FOLLOWS, listed
from poskernel_core.analyses.number import Number, number_of, passing
from poskernel_core.analyses.rules import by_chance, param, sign, who
from poskernel_core.analyses.sentences import ALL_HEADS, has, heads_at
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted

THROUGH = {"key_effect": "its key", "query_effect": "the queries after it"}


def finding(result: Result) -> str:
    """Say what the sink of a head follows, or how many sinks follow what."""
    if has(result, ALL_HEADS, *FOLLOWS, "sink"):
        return _heads(result)
    return _head(result) if has(result, (), *FOLLOWS, *THROUGH, "sink") else ""


def _head(result: Result) -> str:
    head, limit = who(result), param(result, "threshold")
    sink = number_of(result, "sink")
    if sink.surely(limit) == "no":
        return f"{head} has no sink: the first key gets {sink} of its attention (limit {limit:g})."
    effects = {name: number_of(result, name) for name in (*FOLLOWS, *THROUGH)}
    up, down, flat = (
        {name: each for name, each in effects.items() if _side(each) == side} for side in (1, -1, 0)
    )
    if not up.keys() & FOLLOWS.keys():
        return ""
    text = f"The sink of {head} follows {listed(_told(up, FOLLOWS))}"
    if rest := _told(flat, FOLLOWS):
        text += f", not {' nor '.join(rest)}"
    if less := _told(down, FOLLOWS):
        text += f", and less {listed(less)}"
    if "start_token" in up and (through := _told(up, THROUGH)):
        text += f"; the start token acts through {listed(through)}"
    return f"{text}."


def _side(effect: Number) -> int | None:
    """Return 1 or -1 for an effect that is large, 0 for a small one, else None."""
    sides = sign(effect, -EFFECT), sign(effect, EFFECT)
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
    sure = {name: int(passing(result, name, EFFECT)[0].sum()) for name in known}
    if not any(sure.values()):
        return ""
    parts = [f"{FOLLOWS[name]} in {sure[name] or 'none'}" for name in known]
    return (
        f"Among {counted(count, 'head')}{by_chance(count)} with a sink, it follows "
        f"{', '.join(parts)} (effect {EFFECT:g} or more)."
    )
