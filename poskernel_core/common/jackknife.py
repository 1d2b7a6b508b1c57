"""The jackknife: errors, biases and intervals from estimates that leave out one group each."""

import math
from functools import lru_cache

import numpy as np

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


def bias(whole: np.ndarray, estimates: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return by how much the full estimate is too large, from estimates that leave out parts.

    ``whole`` has the shape of the ``estimates`` without ``axis``; NaN for fewer than two estimates.
    """
    count = estimates.shape[axis]
    if count < 2:
        return np.full(np.delete(estimates.shape, axis), np.nan)
    return np.asarray((count - 1) * (estimates.mean(axis=axis) - whole))


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
