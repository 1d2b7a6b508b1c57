"""When a measure emerges in training, on NumPy arrays."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True)
class Emergence:
    """When each head's measure emerged, in steps; NaN where it fell, or ends at 0 or NaN."""

    step: Float[np.ndarray, "..."]
    earliest: Float[np.ndarray, "..."]
    latest: Float[np.ndarray, "..."]


def emergence(steps: Int[np.ndarray, " step"], measure: Float[np.ndarray, "step ..."]) -> Emergence:
    """Return the step from which a measure stays above half of its final value.

    ``steps`` ascend. Between the last checkpoint that is not above half and the next one, the
    crossing is interpolated linearly in the logarithm of the step. Where the first of the two is
    step 0, which has no logarithm, or where all checkpoints are above half, the result is the
    earliest checkpoint that is above, and the interval begins at 0. The sign of a measure that ends
    below 0 is flipped. NaN is not above. If a measure is above half at all checkpoints, and is
    further from 0 at the first than at the last, it fell: it did not emerge.
    """
    final = measure[-1]
    share = np.divide(measure, final, out=np.full(measure.shape, np.nan), where=final != 0)
    above = share > 0.5
    stays = np.flip(np.logical_and.accumulate(np.flip(above, axis=0), axis=0), axis=0)
    first = len(steps) - stays.sum(axis=0)
    fell = (first == 0) & (share[0] > 1)
    first = np.where(np.isfinite(final) & (final != 0) & ~fell, first, len(steps))
    found = {name: np.full(final.shape, np.nan) for name in ("step", "earliest", "latest")}
    for head in np.argwhere(first < len(steps)):
        place, at = int(first[tuple(head)]), tuple(head)
        after = float(steps[place])
        before = float(steps[place - 1]) if place else 0.0
        found["earliest"][at], found["latest"][at] = before, after
        found["step"][at] = after
        low = share[(place - 1, *at)] if place else np.nan
        if before > 0 and np.isfinite(low):
            way = (0.5 - low) / (share[(place, *at)] - low)
            found["step"][at] = before * (after / before) ** way
    return Emergence(**found)


def label_counts(codes: Int[np.ndarray, "step ..."], labels: int) -> Int[np.ndarray, "step label"]:
    """Count the heads with each label at every checkpoint; negative codes mean no label."""
    flat = codes.reshape(len(codes), -1)
    return (flat[:, :, None] == np.arange(labels)).sum(axis=1)
