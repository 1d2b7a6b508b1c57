"""What results about two prompts show."""

import numpy as np

from poskernel_core.analyses.claims import ALL_HEADS, HALF, has, name_at, param, who
from poskernel_core.analyses.patching.spec import INTO_CHANGED
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief

COUNTS = 0.05
"""Smallest share of the difference between two prompts that counts."""

CLEAR = 0.5
"""Smallest difference of the prompts' metrics, in nats, of which shares are told."""

OF = {"output": "", "pattern": " pattern", "values": " values"}
"""What is put into the other run, after a head's name."""


def no_behaviour(result: Result) -> str:
    """Say why the prompts show no behaviour of which heads could carry a share; empty if they do.

    The clean prompt should prefer its answer, and the changed one clearly less.
    """
    if {"clean_metric", "changed_metric"} - result.values.keys():
        return ""
    clean, changed = (float(result.values[f"{name}_metric"]) for name in ("clean", "changed"))
    if param(result, "metric") == "difference" and clean < 0:
        return (
            f"The clean prompt prefers the other answer (by {brief(-clean)} nats), so no head can "
            "carry what these prompts were to show."
        )
    if abs(clean - changed) < CLEAR:
        return (
            f"The prompts differ by {brief(abs(clean - changed))} nats only (limit {CLEAR:g}): "
            "shares of so little say nothing about heads."
        )
    return ""


def finding(result: Result) -> str:
    """Say which head carries most, or what of a head carries it; empty while it forms."""
    if why := no_behaviour(result):
        return why
    if has(result, ("part",), "part_effect"):
        return _parts(result)
    if not has(result, ALL_HEADS, "effect", "attribution"):
        return ""
    effect = result.values["effect"]
    forms = not np.array_equal(np.isnan(effect), np.isnan(result.values["attribution"]))
    if forms or not np.nanmax(effect, initial=0) >= COUNTS:
        return ""
    top = tuple(map(int, np.unravel_index(np.nanargmax(effect), effect.shape)))
    name, what = name_at(result, "effect", top), param(result, "what")
    owner = f"{name}'s{OF[what]}" if OF[what] else name
    does = "restore" if param(result, "direction") == INTO_CHANGED else "undo"
    return (
        f"{owner} {does}{'' if what == 'values' else 's'} {brief(effect[top])} of the difference "
        "between these two prompts, most of all heads (one pair: no error)."
    )


def _parts(result: Result) -> str:
    output, pattern, values = map(float, result.values["part_effect"])
    if not abs(output) >= COUNTS:
        return ""
    why = ""
    for part, other, what in (
        (pattern, values, "where it looks"),
        (values, pattern, "what it finds"),
    ):
        if part / output >= HALF and abs(other) <= abs(part) / 2:
            why = f": {what} decides"
    return (
        f"{who(result)} carries {brief(output)} of the difference between these two prompts, its "
        f"pattern alone {brief(pattern)}, its values alone {brief(values)}"
        f"{why} (one pair: no error)."
    )
