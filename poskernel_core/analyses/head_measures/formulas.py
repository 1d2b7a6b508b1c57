"""Heads put in order by a number each."""

import numpy as np

from poskernel_core.common.axes import PerHead


def ranks(numbers: PerHead) -> PerHead:
    """Return 1 for the largest number, equal numbers alike; NaN stays NaN and counts for nobody."""
    known = np.sort(numbers[~np.isnan(numbers)])
    above = known.size - np.searchsorted(known, numbers, side="right")
    return np.where(np.isnan(numbers), np.nan, 1.0 + above)
