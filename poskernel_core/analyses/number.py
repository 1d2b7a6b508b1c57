"""A number with its standard error, held against a limit: the rule behind verdicts and findings.

A number passes a limit if its whole 95 % interval does, and fails if the whole interval is below.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief

Passes = Literal["yes", "about", "no"]


@dataclass(frozen=True)
class Number:
    """A measure of one head with its standard error; NaN where there is none.

    Attributes:
        value: the measure.
        error: its standard error.
        width: half-width of its 95 % interval, in errors; the centre is the value minus the bias.
        bias: how much too large the measure is because texts are few; NaN: unknown.
    """

    value: float
    error: float
    width: float
    bias: float = 0.0

    def passes(self, limit: float) -> Passes | None:
        """Return whether the number is at or above a limit; None if it is NaN.

        A number without a known error passes no limit for certain.
        """
        if math.isnan(self.value):
            return None
        if math.isnan(self.error):
            return "about" if self.value >= limit else "no"
        middle = self.value - (0.0 if math.isnan(self.bias) else self.bias)
        if middle - self.width * self.error >= limit:
            return "yes"
        return "no" if middle + self.width * self.error < limit else "about"

    def surely(self, limit: float) -> Passes | None:
        """Return whether the number passes a limit, as findings ask: without an error, "about"."""
        return "about" if math.isnan(self.error) else self.passes(limit)

    def __str__(self) -> str:
        """Return the value as sentences print it, with three digits at most: ``0.87``."""
        return brief(self.value)


def number_of(result: Result, name: str, *place: int) -> Number:
    """Return a value of a result at a place along its axes; one without an error is exact."""
    error, bias = (
        float(part[name][place]) if name in part else 0.0 for part in (result.errors, result.biases)
    )
    return Number(float(result.values[name][place]), error, result.interval, bias)


def passing(
    result: Result, name: str, limit: float | np.ndarray, width: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return where a value passes a limit, and where it fails: :meth:`Number.surely` of arrays.

    ``width`` is the half-width of the interval in errors (default: that of 95 %).
    """
    value = result.values[name].astype(float)
    error = result.errors.get(name, np.zeros_like(value)).astype(float)
    middle = value - np.nan_to_num(result.biases.get(name, np.zeros_like(value)))
    reach = (width or result.interval) * error
    with np.errstate(invalid="ignore"):
        return np.asarray(middle - reach >= limit), np.asarray(middle + reach < limit)
