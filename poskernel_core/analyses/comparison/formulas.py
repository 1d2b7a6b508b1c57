"""Kernels by offset, and how far two heads are apart."""

import numpy as np
from jaxtyping import Float

from poskernel_core.analyses.kernels.formulas import total_variation
from poskernel_core.common.jackknife import jackknife

Rows = Float[np.ndarray, "*batch offset"]
Others = Float[np.ndarray, "*other offset2"]


def common_offsets(left: Rows, right: Others) -> tuple[np.ndarray, np.ndarray]:
    """Return two kernels on the offsets that both see, each renormalised there.

    Offsets that a kernel does not see hold NaN; it is 0 everywhere where it has no mass on them.
    """
    size = min(left.shape[-1], right.shape[-1])
    left, right = left[..., :size], right[..., :size]
    both = np.isfinite(left) & np.isfinite(right)
    return _shares(left, both), _shares(right, both)


def _shares(rows: np.ndarray, seen: np.ndarray) -> np.ndarray:
    rows = np.where(seen, rows, 0.0)
    mass = rows.sum(axis=-1, keepdims=True)
    return np.divide(rows, mass, out=np.zeros_like(rows), where=mass > 0)


def distance(left: Rows, right: Others) -> Float[np.ndarray, "*together"]:
    """Return the TV distance of kernels by offset on the offsets that both see, in [0, 1].

    1 where one of them has no mass there; NaN where a kernel is not known at all.
    """
    known = np.isfinite(left).any(axis=-1) & np.isfinite(right).any(axis=-1)
    left, right = np.broadcast_arrays(*common_offsets(left, right))
    there = (left.sum(axis=-1) > 0) & (right.sum(axis=-1) > 0)
    gap = np.clip(total_variation(left, right), 0.0, 1.0)
    return np.where(known, np.where(there, gap, 1.0), np.nan)


def distance_error(
    left: Float[np.ndarray, " offset"],
    right: Float[np.ndarray, " offset2"],
    left_folds: Float[np.ndarray, "fold offset"],
    right_folds: Float[np.ndarray, "fold2 offset2"],
    *,
    together: bool,
) -> float:
    """Return the standard error of a distance, a jackknife over groups of texts.

    ``together``: both heads read the same texts, which are left out of both; else of one after the
    other, and the variances add up.
    """
    if together:
        return float(jackknife(distance(left_folds, right_folds)))
    ours = jackknife(distance(left_folds, right[None]))
    theirs = jackknife(distance(left[None], right_folds))
    return float(np.hypot(ours, theirs))


def largest_error(left: Rows, right: Others) -> Float[np.ndarray, "*together"]:
    """Return the largest that a distance's standard error can be, from those at every offset.

    A sum's error is at most the sum of the errors, however they go together: here half of it, of
    the standard errors ``left`` and ``right`` of two kernels at the offsets that both know.
    """
    size = min(left.shape[-1], right.shape[-1])
    both = np.hypot(left[..., :size], right[..., :size])
    return np.asarray(0.5 * np.nansum(both, axis=-1))


def apart(value: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Return by how many standard errors values ``[..., pin]`` exceed the first pin's.

    NaN where an error is not known; the first pin itself is 0.
    """
    gap = value - value[..., :1]
    both = np.hypot(error, error[..., :1])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gap == 0, np.where(np.isnan(both), np.nan, 0.0), gap / both)
