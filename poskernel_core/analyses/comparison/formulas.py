"""Distances between kernels by offset, with errors."""

import numpy as np
from jaxtyping import Float

from poskernel_core.analyses.kernels.formulas import effective_tokens, total_variation
from poskernel_core.common.jackknife import bias, cross_fit, estimate, jackknife, signs

Rows = Float[np.ndarray, "*batch offset"]
Others = Float[np.ndarray, "*other offset2"]


def common_offsets(left: Rows, right: Others) -> tuple[np.ndarray, np.ndarray]:
    """Return two kernels on the offsets that both see, each renormalised there.

    NaN marks offsets that a kernel does not see. A kernel without mass on common offsets becomes 0.
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
    """Return the TV distance, 0 to 1, of kernels by offset on the offsets that both see.

    It is 1 where a kernel has no mass on these offsets, and NaN where a kernel is all NaN.
    """
    known = np.isfinite(left).any(axis=-1) & np.isfinite(right).any(axis=-1)
    left, right = np.broadcast_arrays(*common_offsets(left, right))
    there = (left.sum(axis=-1) > 0) & (right.sum(axis=-1) > 0)
    gap = np.clip(total_variation(left, right), 0.0, 1.0)
    return np.where(known, np.where(there, gap, 1.0), np.nan)


def compared(
    left: Float[np.ndarray, " offset"],
    right: Float[np.ndarray, " offset2"],
    left_folds: Float[np.ndarray, "fold offset"],
    right_folds: Float[np.ndarray, "fold2 offset2"],
    width: float,
) -> dict[str, float]:
    """Return the distance of two kernels, and what stands beside it by part of a result.

    A group of texts is left out of both kernels at once: the same texts, or as good as any others
    where the two read different ones. If the numbers of groups differ, a group is left out of one
    kernel at a time, variances and biases add up, and the distance is not cross-fit.
    ``width`` is half the width of an interval in standard errors.
    """
    plug_in = np.asarray(distance(left, right))
    if len(left_folds) == len(right_folds):
        without = distance(left_folds, right_folds)
        difference, others = (
            np.subtract(*common_offsets(*pair))
            for pair in ((left, right), (left_folds, right_folds))
        )
        fitted = cross_fit(difference, [*map(signs, others)], without)
        error = jackknife(without)
        excess = np.where(error > 0, (plug_in - fitted) / 2, 0.0)
    else:
        ours, theirs = distance(left_folds, right[None]), distance(left[None], right_folds)
        error = np.asarray(np.hypot(jackknife(ours), jackknife(theirs)))
        excess = np.asarray(bias(plug_in, ours) + bias(plug_in, theirs))
    interval = estimate("distance", plug_in, excess, error, width, (0, 1))
    numbers = (*interval, error, excess, plug_in)
    parts = ("values", "lows", "highs", "errors", "biases", "plug_ins")
    return {part: float(number) for part, number in zip(parts, numbers, strict=True)}


def largest_error(left: Rows, right: Others) -> Float[np.ndarray, "*together"]:
    """Return an upper bound of a distance's standard error, from the errors at every offset.

    The error of a sum is at most the sum of the errors, whatever their correlation. So the bound is
    half the sum, over the common offsets, of the difference's standard error. ``left`` and
    ``right`` are the standard errors of the two kernels.
    """
    size = min(left.shape[-1], right.shape[-1])
    both = np.hypot(left[..., :size], right[..., :size])
    return np.asarray(0.5 * np.nansum(both, axis=-1))


def apart(value: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Return the z scores of values ``[..., pin]`` against the first pin.

    NaN where an error is unknown; 0 for the first pin.
    """
    gap = value - value[..., :1]
    both = np.hypot(error, error[..., :1])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gap == 0, np.where(np.isnan(both), np.nan, 0.0), gap / both)


def token_counts(rows: Rows) -> Float[np.ndarray, "*batch"]:
    """Return the effective tokens of rows that end in NaN; NaN of rows that are not known."""
    unknown = np.isnan(rows).all(axis=-1, keepdims=True)
    return effective_tokens(np.where(unknown, np.nan, np.nan_to_num(rows)))
