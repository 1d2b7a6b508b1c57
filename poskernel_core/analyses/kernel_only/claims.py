"""What results about heads that attend by position alone show."""

from collections.abc import Iterator

import numpy as np

from poskernel_core.analyses.claims import (
    HALF,
    Claim,
    Head,
    Rules,
    at_limit,
    number_of,
    of_all,
    spoken,
    who,
)
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.common.jackknife import Estimate
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted

COSTS = 0.01
"""Smallest cost, in nats a token, that counts."""


def _costs(result: Result) -> str:
    exact = result.values["exact"] == 1
    costs = Estimate(*(part[exact] for part in result.estimate_of("kernel_only_cost")))
    sure = discovered(result, Condition(costs, COSTS))
    if not sure.count and sure.open.all():
        return ""
    many = of_all(sure.count, costs.value.size, "exact cost", sure.beside)
    verb = "is" if sure.count == 1 else "are"
    return f"{many} of the kernel alone {verb} {COSTS:g} nats a token or more."


def kept(head: Head) -> Iterator[Claim]:
    """Yield what a head's kernel keeps of what the head gives the model, if that is exact."""
    if head.word("exact") == "estimate" or not head.has("kernel_only_share", "kernel_only_cost"):
        return
    share, cost = head.number("kernel_only_share"), head.number("kernel_only_cost")
    text = (
        f"{{its}} kernel alone keeps {share} of what the head gives the model, "
        f"at a cost of {cost} nats a token"
    )
    yield from at_limit("kernel alone", share, HALF, text, "position carries its effect")


def _cost(result: Result) -> str:
    if share := spoken(kept)(result):
        return share
    cost = number_of(result, "kernel_only_cost")
    if Head(result).word("exact") == "estimate" or not cost.sign():
        return ""
    does, amount = "loses" if cost.value > 0 else "gains", str(cost).lstrip("−")
    return f"If {who(result)} attends by its kernel alone, the model {does} {amount} nats a token."


def _replaced(result: Result) -> str:
    total, parts = int(result.coordinates.get("heads", [0])[-1]), []
    for name in ("heads_for_tenth", "heads_for_5_percent"):
        number = number_of(result, name, 0)
        if not total or not np.isfinite(number.low + number.high):
            return ""
        low, high = (round(min(max(0.0, end), total)) for end in (number.low, number.high))
        parts.append(f"{low} to {high}" if low < high else f"{low}")
    return (
        f"For 0.1 nats a token, {parts[0]} of {counted(total, 'head')} can attend by their kernels "
        f"alone; for 5 % of the loss, {parts[1]} (95 % intervals)."
    )


RULES: Rules = {
    "heads-replaced: heads_for_tenth heads_for_5_percent [pattern]": _replaced,
    "kernel-only-cost: kernel_only_cost []": _cost,
    "kernel-only-head: kernel_only_cost []": _cost,
    "kernel-only-cost: kernel_only_cost exact [layer head]": _costs,
}

CLAIMS = {"kernel-only-cost": (kept,)}
