"""What is drawn and said of heads over training."""

import numpy as np

from poskernel_core.analyses.claims import amount, heads_range, number_of, param, who
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.training.figures import counts, curves, grids, kernels
from poskernel_core.analyses.views import PICK, View, Views
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


VIEWS: Views = {
    "over-training": (
        View("measure [step], change []", says=_head),
        View("measure [step layer head], change [layer head]", says=_heads),
        View("measure [step], emergence emergence_earliest emergence_latest []", curves),
        View(
            "measure [step layer head], change emergence emergence_earliest emergence_latest "
            "[layer head]",
            curves,
            reading="One line per head; the band is one standard error of the measure at that "
            "checkpoint. The axis is logarithmic, with step 0 at its left end. A diamond marks the "
            "**emergence**, at half of the head's final value; the dotted line through it spans "
            "the two checkpoints between which it lies. A head above half of its final value from "
            "the first step on has no mark. A measure that fell did not emerge: such heads come "
            "last in the table.",
        ),
        View(
            "measure [step layer head]",
            grids,
            "all heads at every checkpoint, by step",
            reading="The grid of all heads at every checkpoint, in reading order, on one scale. "
            "The number above a grid is its step; a frame marks the selected head.",
        ),
        View(
            "measure [layer head]",
            says=_at_step,
            reading="One cell per head, layers downwards, at the step of the slider above, on one "
            f"scale for all steps. {PICK}",
        ),
        View(
            "count [step label]",
            counts,
            reading="The number of heads of each kind at every checkpoint, stacked, at the "
            "selected query position and skip.",
        ),
    ),
    "kernel-over-training": (
        View(
            "kernel [step key], etc [step]",
            kernels,
            "kernel of {head} over training",
            reading="Each row is a checkpoint, the first at the top; each column an offset $n - "
            "i$; brightness is the share of attention by position alone (log scale). A local head "
            "is bright at the left, a uniform one has the same brightness everywhere.",
        ),
        View("etc [step]", says=_kernel),
    ),
}
