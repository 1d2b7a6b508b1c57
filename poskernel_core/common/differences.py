"""Means of groups of windows, kept as 16-bit differences from the mean of all.

An array of means ``NAME`` that has groups is kept as three: ``NAME``, ``NAME.groups`` (16-bit
integers, the group as first axis) and ``NAME.step`` (what their unit is, for each row, or for each
number of a short one). All groups have equally many windows, so the mean without group ``g`` is
``m - d_g / (G - 1)``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

__all__ = ["DIFFERENCES", "STEP", "average", "left_out", "of_groups"]

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


def left_out(arrays: Mapping[str, np.ndarray], name: str, group: int) -> np.ndarray:
    """Return one layer's mean without one group; one that has no groups as it is."""
    groups = arrays.get(f"{name}{DIFFERENCES}")
    if groups is None:
        return arrays[name]
    step = arrays[f"{name}{STEP}"][0] / np.float32(len(groups) - 1)
    return arrays[name] - groups[group] * step


def of_groups(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Return the means of each group ``[group, ...]``; one that has no groups is one of its own."""
    groups = arrays.get(f"{name}{DIFFERENCES}")
    if groups is None:
        return arrays[name][None]
    return arrays[name] + groups * arrays[f"{name}{STEP}"]
