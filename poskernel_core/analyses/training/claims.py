"""What results about training show."""

import numpy as np

from poskernel_core.analyses.claims import (
    Rules,
    amount,
    heads_range,
    number_of,
    param,
    who,
)
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted


def _at_step(result: Result) -> str:
    if "measure" in result.labels:
        return ""
    here = f" at step {result.chosen['step']:,}" if "step" in result.chosen else ""
    return heads_range(result, "measure", f"{param(result, 'measure')}{here}")


def _between(result: Result) -> str:
    first, last = result.coordinates["step"][[0, -1]]
    return f"from step {first:,} to step {last:,}"


def _head(result: Result) -> str:
    if not (turns := number_of(result, "change").sign()):
        return ""
    verb = "rose" if turns > 0 else "fell"
    first, last = (amount(result.values["measure"][at], result.units["measure"]) for at in (0, -1))
    return (
        f"The {param(result, 'measure')} of {who(result)} {verb} {_between(result)}: from "
        f"{first} to {last}."
    )


def _heads(result: Result) -> str:
    value = result.values["change"].astype(float)
    changed = discovered(result, Condition("change", 0, "apart")).count
    known = int(np.isfinite(value).sum())
    if not changed:
        return ""
    place = np.unravel_index(np.nanargmax(np.abs(value)), value.shape)
    most = f"{head_name(int(place[0]), int(place[1]))} (by {brief(value[place])})"
    return (
        f"The {param(result, 'measure')} of {changed} of {counted(known, 'head')} changed "
        f"{_between(result)}; that of {most} changed most."
    )


def _kernel(result: Result) -> str:
    last = len(result.values["etc"]) - 1
    change = number_of(result, "etc", last) - number_of(result, "etc", 0)
    if not last or not change.sign():
        return ""
    before, after = (amount(result.values["etc"][place], "tokens") for place in (0, last))
    steps = result.coordinates["step"]
    return (
        f"By position alone {who(result)} spread its attention over {before} at step "
        f"{steps[0]:,}, and over {after} at step {steps[last]:,}."
    )


RULES: Rules = {
    "over-training: change [], measure [step]": _head,
    "over-training: change [layer head]": _heads,
    "over-training: measure [layer head]": _at_step,
    "kernel-over-training: etc [step]": _kernel,
}
