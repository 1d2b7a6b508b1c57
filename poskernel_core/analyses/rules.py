"""What findings are made of: rules by the values shown, certain numbers, names and counts."""

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from poskernel_core.analyses import find
from poskernel_core.analyses.number import Number, number_of
from poskernel_core.common.heads import head_name
from poskernel_core.common.jackknife import Estimate, difference
from poskernel_core.common.result import Result

CHANCE = 0.05
"""Share of equal numbers that a 95 % interval takes for different ones."""

Rules = Mapping[str, Callable[[Result], str]]
"""A sentence for each set of values; a key such as ``etc: etc local_mass [layer head], kind []``
names a question, and values with their axes."""


def said(result: Result, rules: Rules) -> str:
    """Return the sentence of the first rule whose values are all there; empty if there is none."""
    for known, sentence in rules.items():
        question, needed = _needed(known)
        if question == result.analysis and all(
            name in result.values and result.axes[name] == axes for name, axes in needed
        ):
            return sentence(result)
    return ""


@cache
def _needed(known: str) -> tuple[str, tuple[tuple[str, tuple[str, ...]], ...]]:
    question, _, shapes = known.partition(": ")
    parts = (shape.rstrip("]").split("[") for shape in shapes.split(", "))
    return question, tuple(
        (name, tuple(axes.split())) for names, axes in parts for name in names.split()
    )


def param(result: Result, name: str) -> Any:
    """Return a parameter of a result, or its default."""
    return result.params.get(name, find(result.analysis).params.model_fields[name].default)


def who(result: Result) -> str:
    """Return the head that a result is about, such as ``L3H7``."""
    if "head" in result.chosen:
        return head_name(result.chosen["layer"], result.chosen["head"])
    return str(param(result, "head")).strip().upper()


def sign(number: Number, limit: float = 0.0) -> int:
    """Return 1 if a number's interval is above a limit, -1 if it is below, else 0."""
    if number.value == limit:
        return 0
    return {"yes": 1, "no": -1}.get(number.surely(limit) or "", 0)


def most(result: Result, name: str) -> tuple[int, ...] | None:
    """Return the place of a value that can be told from all others and is above them, or None."""
    estimate = result.estimate_of(name)
    known = ~np.isnan(estimate.value)
    if not known.any():
        return None
    top = np.unravel_index(np.nanargmax(estimate.value), known.shape)
    known[top] = False
    apart = difference(Estimate(*(part[top] for part in estimate)), estimate).low > 0
    return tuple(map(int, top)) if apart[known].all() else None


def named(result: Result, name: str) -> dict[str, Number]:
    """Return the numbers of a value by head (``L3H7``), or else by axis and place (``neuron 5``).

    Those that are not known are left out.
    """
    estimate = result.estimate_of(name)
    return {
        name_at(result, name, at): number_of(result, name, *at)
        for at in np.ndindex(estimate.value.shape)
        if not math.isnan(estimate.value[at])
    }


def name_at(result: Result, name: str, place: tuple[int, ...]) -> str:
    """Return the name of a place along a value's axes."""
    at = {**result.chosen, **dict(zip(result.axes[name], place, strict=True))}
    if "head" in at:
        return head_name(at["layer"], at["head"])
    return " ".join(f"{axis} {at[axis]}" for axis in result.axes[name])


def reach(result: Result, name: str, limit: float, what: str) -> str:
    """Say how many heads (or neurons) have ``what`` of a limit or more, and whose is largest.

    Empty if it is uncertain whether there are any.
    """
    numbers = named(result, name)
    sure = sum(number.passes(limit) == "yes" for number in numbers.values())
    if not numbers or not (sure or all(sign(each, limit) < 0 for each in numbers.values())):
        return ""
    top = most(result, name)
    first = "" if top is None else name_at(result, name, top)
    best = f"; {first} has the largest, {numbers[first]}" if first else ""
    count = of_all(sure, len(numbers), result.axes[name][-1])
    has = "have" if sure > 1 else "has"
    return f"{count} {has} {what} of {limit:g} or more{best}."


def of_all(count: int, total: int, noun: str = "head") -> str:
    """Return ``41 of 270 heads (up to 7 by chance)``, or ``None of 32 heads``."""
    text = f"{count or 'None'} of {total:,} {noun}{'' if total == 1 else 's'}"
    return f"{text}{by_chance(total)}" if count else text


def by_chance(asked: int) -> str:
    """Say how many of so many heads a claim may wrongly be made of; empty if hardly any.

    A 95 % interval lies beyond the truth on one side in 2.5 of 100.
    """
    most = round(CHANCE / 2 * asked)
    return f" (up to {most} by chance)" if most else ""
