"""The jackknife: standard errors of what is no mean, such as a fit or a softmax of means."""

from __future__ import annotations

import numpy as np

__all__ = ["jackknife"]


def jackknife(estimates: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return the standard error of estimates that leave out one part of the data each.

    They lie along ``axis``, which goes; NaN for fewer than two.
    """
    count = estimates.shape[axis]
    if count < 2:
        return np.full(np.delete(estimates.shape, axis), np.nan)
    return np.asarray(np.sqrt((count - 1) * estimates.var(axis=axis)))
