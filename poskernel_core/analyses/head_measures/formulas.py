"""Ranks of heads."""

import numpy as np

from poskernel_core.common.axes import PerHead


def ranks(numbers: PerHead) -> PerHead:
    """Return ranks, 1 for the largest; ties share a rank; NaN stays NaN and does not count."""
    known = np.sort(numbers[~np.isnan(numbers)])
    above = known.size - np.searchsorted(known, numbers, side="right")
    return np.where(np.isnan(numbers), np.nan, 1.0 + above)
