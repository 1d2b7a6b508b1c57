"""Which heads of many pass a limit: lists and counts that hold for all of them together.

Among many heads, a few pass a limit by chance alone. A list holds those that pass Benjamini and
Hochberg's rule (1995) at 5 % and whose own 95 % interval passes, so that at most one in twenty of a
list is wrong on average; one head alone goes by its own interval.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from poskernel_core.common.jackknife import Estimate, upper_tail
from poskernel_core.common.result import Result

RATE = 0.05
"""Share of a list that is wrong on average."""

Side = Literal["reaches", "below", "apart"]


class Condition(NamedTuple):
    """A value of all heads, or its estimate, that reaches a limit, is below or apart from it."""

    value: str | Estimate
    limit: float | np.ndarray
    side: Side = "reaches"


@dataclass(frozen=True)
class Heads:
    """The numbers that meet all conditions, and those of which it is open; of one shape."""

    sure: np.ndarray
    open: np.ndarray

    @property
    def count(self) -> int:
        """The number of heads in the list."""
        return int(self.sure.sum())

    @property
    def unsure(self) -> str:
        """Return how many heads are left out because it is open: ``4 more can't be told``."""
        unknown = int(self.open.sum())
        return f"{unknown:,} more can't be told" if unknown else ""

    @property
    def beside(self) -> str:
        """Return the same in brackets, after a blank."""
        return f" ({self.unsure})" if self.unsure else ""


def discovered(result: Result, *conditions: Condition) -> Heads:
    """Return which numbers meet all conditions (of several, the largest p-value counts).

    Numbers that are NaN are neither.
    """
    every = [_met(result, condition) for condition in conditions]
    p, own, against, known = (np.array(part) for part in zip(*every, strict=True))
    of_all = known.all(axis=0)
    sure = own.all(axis=0) & benjamini_hochberg(np.where(of_all, p.max(axis=0), np.nan))
    return Heads(sure, of_all & ~sure & ~against.any(axis=0))


def benjamini_hochberg(p: np.ndarray) -> np.ndarray:
    """Return which of many p-values pass; those that are NaN are not counted."""
    flat = np.sort(p[np.isfinite(p)])
    passes = flat <= RATE * np.arange(1, len(flat) + 1) / max(1, len(flat))
    return np.asarray(p <= flat[passes].max(initial=-1.0))


def _met(result: Result, condition: Condition) -> tuple[np.ndarray, ...]:
    """Return p-values, where the own interval passes, where it fails, and what is known."""
    numbers, limit, side = condition
    value, low, high = numbers if isinstance(numbers, Estimate) else result.estimate_of(numbers)
    above, under = low >= limit, high < limit
    reaches = _tail(result, value - limit, value - low)
    below = _tail(result, limit - value, high - value)
    match side:
        case "reaches":
            p, own, against = reaches, above, under
        case "below":
            p, own, against = below, under, above
        case _:
            p, own = np.minimum(1, 2 * np.fmin(reaches, below)), (above | under) & (value != limit)
            against = np.zeros_like(own)
    return tuple(map(np.asarray, (p, own, against, np.isfinite(value))))


def _tail(result: Result, gap: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Return the p-values of gaps to a limit, given the widths of the intervals on that side."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(reach > 0, result.interval * gap / reach, np.where(gap >= 0, np.inf, -np.inf))
    unknown = ~np.isfinite(reach)  # which passes nothing
    return np.where(unknown, 1.0, upper_tail(np.where(unknown, 0.0, t), result.groups - 1))
