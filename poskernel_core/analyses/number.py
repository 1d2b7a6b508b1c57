"""A number with its interval, held against a limit: the rule behind all claims.

A number passes a limit if its whole 95 % interval does, and fails if the whole interval is below.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from poskernel_core.common.jackknife import Estimate
from poskernel_core.common.jackknife import difference as of_two
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief

Passes = Literal["yes", "about", "no"]


@dataclass(frozen=True)
class Number:
    """A number with the ends of its 95 % interval, NaN where these are unknown.

    The ends of an exact number are the number.
    """

    value: float
    low: float
    high: float

    @classmethod
    def within(cls, value: float, reach: float) -> "Number":
        """Return a number with an interval of this half width."""
        return cls(value, value - reach, value + reach)

    def passes(self, limit: float) -> Passes | None:
        """Return whether the number is at or above a limit; None if it is NaN.

        A number whose interval is unknown passes no limit.
        """
        if math.isnan(self.value):
            return None
        if math.isnan(self.low):
            return "about" if self.value >= limit else "no"
        if self.low >= limit:
            return "yes"
        return "no" if self.high < limit else "about"

    def surely(self, limit: float) -> Passes | None:
        """Return whether the number passes a limit, as findings ask: if unknown, "about"."""
        return "about" if math.isnan(self.low) else self.passes(limit)

    def __sub__(self, other: "Number") -> "Number":
        """Return the difference of two independent numbers."""
        pair = (Estimate(*map(np.asarray, (n.value, n.low, n.high))) for n in (self, other))
        return Number(*map(float, of_two(*pair)))

    def __str__(self) -> str:
        """Return the value as sentences print it, with three digits at most: ``0.87``."""
        return brief(self.value)


def number_of(result: Result, name: str, *place: int) -> Number:
    """Return a value of a result at a place along its axes; one without an error is exact."""
    return Number(*(float(part[place]) for part in result.estimate_of(name)))


def passing(
    result: Result, name: str, limit: float | np.ndarray, stretched: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return where a value passes a limit, and where it fails: :meth:`Number.surely` of arrays.

    ``stretched`` is the factor by which the ends of the interval are farther away than at 95 %.
    """
    value, low, high = result.estimate_of(name)
    with np.errstate(invalid="ignore"):
        return (
            np.asarray(value - stretched * (value - low) >= limit),
            np.asarray(value + stretched * (high - value) < limit),
        )
