"""The jackknife: errors, biases and intervals from estimates that leave out one group each."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

Kind = Literal["smooth", "log", "share", "distance", "null", "plain", "range"]
"""How a number is corrected and its interval drawn:

- ``smooth``: the mean of the pseudo-values, plus and minus t standard errors;
- ``log``: the same on the scale of logarithms, for positive numbers that vary in proportion;
- ``share``: as smooth, with the ends of the interval on the scale of log odds, as shares near 0 or
  1 are skewed;
- ``distance``: the distance of two mean rows, or the largest or second largest of several numbers:
  too large from few texts, by up to twice its bias. The bias of a distance is half of what it loses
  by :func:`cross_fit`; of other such numbers the jackknife sees about as much;
- ``null``: another number that is never negative, and 0 where there is no effect;
- ``plain``: not corrected, so that it is what its source defines;
- ``range``: a whole number, a place or what changes by jumps: not corrected, without an error; in
  place of an interval, the smallest and the largest number without one group of texts.
"""

STUDENT = (
    12.7062047364, 4.3026527299, 3.1824463053, 2.7764451052, 2.5705818366, 2.4469118511,
    2.3646242510, 2.3060041350, 2.2621571627,
)  # fmt: skip
"""Quantiles of Student's t at 0.975 for 1, 2, ... degrees of freedom, written out because a
pages-only server has no scipy."""


def jackknife(estimates: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return the standard error from estimates that leave out one part of the data each.

    The estimates lie along ``axis``, which is removed; NaN for fewer than two estimates.
    """
    count = estimates.shape[axis]
    if count < 2:
        return np.full(np.delete(estimates.shape, axis), np.nan)
    return np.asarray(np.sqrt((count - 1) * estimates.var(axis=axis)))


def bias(full: np.ndarray, estimates: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return by how much the full estimate is too large, from estimates that leave out parts.

    ``full`` has the shape of the ``estimates`` without ``axis``; NaN for fewer than two estimates.
    """
    count = estimates.shape[axis]
    if count < 2:
        return np.full(np.delete(estimates.shape, axis), np.nan)
    return np.asarray((count - 1) * (estimates.mean(axis=axis) - full))


@lru_cache
def interval(groups: int, share: float = 0.95) -> float:
    """Return the half width of an interval (of 95 %) in standard errors, for this many groups.

    This is Student's t with ``groups - 1`` degrees of freedom; infinite for fewer than two groups.
    """
    if groups < 2:
        return math.inf
    if groups < len(STUDENT) + 2 and share == 0.95:
        return STUDENT[groups - 2]
    from scipy.special import stdtrit

    return float(stdtrit(groups - 1, (1 + share) / 2))


def upper_tail(t: np.ndarray, degrees: int) -> np.ndarray:
    """Return the probability of Student's t beyond each value, for so many degrees of freedom.

    The finite series of Abramowitz and Stegun (26.7.3 and 4); the normal one without degrees.
    """
    if degrees < 1:
        return np.vectorize(lambda z: math.erfc(z / math.sqrt(2)) / 2, otypes=[float])(t)
    angle = np.arctan(np.abs(t) / math.sqrt(degrees))
    sine, cosine = np.sin(angle), np.cos(angle)
    odd = degrees % 2
    term = cosine if odd else np.ones_like(angle)
    total = np.zeros_like(angle)
    for k in range(1 + odd, degrees, 2):
        total = total + term
        term = term * cosine**2 * k / (k + 1)
    within = (angle + sine * total) * 2 / math.pi if odd else sine * total
    return np.asarray((1 - np.sign(t) * within) / 2)


AT_NULL = 1 / math.sqrt(1 - 2 / math.pi) - 1
"""By how much the cross-fit distance varies more than the plug-in one, if all of it is noise: a
normal number varies more than its absolute value."""


class Estimate(NamedTuple):
    """A number as it is shown, and the ends of its interval; arrays of one shape."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def estimate(
    kind: Kind,
    plug_in: np.ndarray,
    bias: np.ndarray,
    error: np.ndarray,
    width: float,
    bounds: tuple[float, float],
) -> Estimate:
    """Return the corrected value with its interval.

    Args:
        kind: how the number is corrected.
        plug_in: the number of all texts.
        bias: by how much it is too large; NaN where unknown, which corrects nothing.
        error: its standard error. (Of a range: half of it; the bias then leads to its middle.)
        width: half the width of an interval, in standard errors.
        bounds: the number's range; what lies beyond is put at its end.
    """
    bias = np.zeros_like(plug_in) if kind == "plain" else np.nan_to_num(bias)
    reach, value = width * error, plug_in - bias
    if kind == "range":
        return Estimate(plug_in, np.asarray(value - error), np.asarray(value + error))
    ends = value - reach, value + reach
    if kind == "log":
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            spread = error / plug_in  # bias and error of the logarithm, to second order
            value = plug_in * np.exp(np.nan_to_num(spread**2 / 2 - bias / plug_in))
            ends = value * np.exp(-width * spread), value * np.exp(width * spread)
    elif kind == "share":
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            share = np.clip(value, *bounds)
            # the odds, and the factor to their ends: the error of their logarithm, to first order
            odds, factor = share / (1 - share), np.exp(reach / (plug_in * (1 - plug_in)))
            inside = (share > 0) & (share < 1) & (plug_in > 0) & (plug_in < 1)
            scaled = 1 / (1 + factor / odds), 1 / (1 + 1 / (odds * factor))
        ends = np.where(inside, scaled[0], ends[0]), np.where(inside, scaled[1], ends[1])
    elif kind == "null":
        ends = ends[0], np.fmax(plug_in, value) + reach
    elif kind == "distance":
        fitted = np.fmin(value - bias, plug_in)
        with np.errstate(divide="ignore", invalid="ignore"):
            noise = 1 - np.clip(np.nan_to_num(fitted / plug_in), 0, 1)
        value = np.clip(value, fitted, plug_in)
        ends = fitted - reach * (1 + AT_NULL * noise), plug_in + reach
    return Estimate(*(np.asarray(np.clip(array, *bounds)) for array in (value, *ends)))


def signs(rows: np.ndarray) -> np.ndarray:
    """Return which entries of differences ``[..., row]`` are above 0, eight in a byte."""
    return np.packbits(rows > 0, axis=-1)


def cross_fit(
    rows: np.ndarray, signs_without: Sequence[np.ndarray], without: np.ndarray
) -> np.ndarray:
    """Return the cross-fit distance ``x_c``, which lies at or below the true one.

    Signs come from the other groups, so that noise does not add up: ``mean_g 0.5 sum_i
    sign(d_without_g) d_g`` with the pseudo-values ``d_g``.

    Args:
        rows: the differences ``[..., row]`` of two mean rows.
        signs_without: the :func:`signs` of the same without each group of texts.
        without: the distances ``[group, ...]`` without each group.
    """
    count, half = len(without), 0.5 * rows.sum(axis=-1)
    of_all = [
        np.einsum("...i,...i->...", rows, np.unpackbits(bits, axis=-1, count=rows.shape[-1]))
        for bits in signs_without
    ]
    return np.asarray(count * (np.mean(of_all, axis=0) - half) - (count - 1) * without.mean(axis=0))


def difference(one: Estimate, other: Estimate) -> Estimate:
    """Return the difference of two independent numbers, each with an interval of its own shape.

    The distances from each value to the end of its interval add up as squares (Zou and Donner,
    2008). Of numbers of the same texts the interval is too wide where texts move both alike, and
    too narrow where they move them apart.
    """
    value = one.value - other.value
    below = np.hypot(one.value - one.low, other.high - other.value)
    above = np.hypot(one.high - one.value, other.value - other.low)
    return Estimate(*map(np.asarray, (value, value - below, value + above)))
