"""Means of groups of windows, kept as 16-bit differences from the mean of all.

An array of means ``NAME`` that has groups is kept as three: ``NAME``, ``NAME.groups`` (16-bit
integers, the group as first axis) and ``NAME.step`` (what their unit is, for each row, or for each
number of a short one). All groups have equally many windows, so the mean of some is ``m`` and the
mean of their differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

__all__ = ["DIFFERENCES", "STEP", "average", "each_group", "of_groups"]

DIFFERENCES, STEP = ".groups", ".step"
LARGEST = np.iinfo(np.int16).max
SHORT = 16
"""Numbers of a row that have a unit each."""


def average(name: str, means: np.ndarray, axis: int = 0) -> dict[str, np.ndarray]:
    """Return the mean of the groups' means ``[..., group, ...]``, and how each differs from it.

    ``axis`` is that of the groups; a mean of one group has no differences.
    """
    wide = means.astype(np.float64)
    mean = wide.mean(axis=axis)
    kept = {name: mean.astype(np.float32)}
    if means.shape[axis] < 2:
        return kept
    off = np.nan_to_num(wide - np.expand_dims(mean, axis))
    rows = (axis,) if off.shape[-1] < SHORT else (axis, off.ndim - 1)
    step = np.abs(off).max(axis=rows, keepdims=True) / LARGEST
    counts = np.divide(off, step, out=np.zeros_like(off), where=step > 0)
    kept[f"{name}{DIFFERENCES}"] = np.rint(counts).astype(np.int16)
    kept[f"{name}{STEP}"] = step.astype(np.float32)
    return kept


def of_groups(arrays: Mapping[str, np.ndarray], name: str, kept: Sequence[int]) -> np.ndarray:
    """Return one layer's mean over some groups; one that has no groups as it is."""
    groups = arrays.get(f"{name}{DIFFERENCES}")
    if groups is None:
        return arrays[name]
    rest = [group for group in range(len(groups)) if group not in kept]
    few, sign = (kept, 1) if len(kept) <= len(rest) else (rest, -1)  # all differences add up to 0
    off = groups[list(few)].sum(axis=0, dtype=np.int32)
    step = arrays[f"{name}{STEP}"][0] * np.float32(sign / len(kept))
    return np.asarray(arrays[name] + off * step, dtype=np.float32)


def each_group(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Return the means of each group ``[group, ...]``; one that has no groups is one of its own."""
    groups = arrays.get(f"{name}{DIFFERENCES}")
    if groups is None:
        return arrays[name][None]
    return arrays[name] + groups * arrays[f"{name}{STEP}"]
