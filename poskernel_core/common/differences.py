"""Store the means of groups of windows as 16-bit differences from the overall mean.

Means ``NAME`` with groups are stored as three arrays: ``NAME`` (the overall mean), ``NAME.groups``
(differences as 16-bit integers, group first) and ``NAME.step`` (the unit of the integers, one per
row, or one per number of a short row). All groups have equally many windows, so the mean over some
groups is the overall mean plus the mean of their differences.
"""

from collections.abc import Mapping, Sequence

import numpy as np

DIFFERENCES, STEP = ".groups", ".step"
LARGEST = np.iinfo(np.int16).max
SHORT = 16
"""A row with fewer numbers than this has a separate step for each number."""


def average(name: str, means: np.ndarray, axis: int = 0) -> dict[str, np.ndarray]:
    """Split group means ``[..., group, ...]`` into the overall mean and the differences from it.

    ``axis`` is the axis of the groups; a single group has no differences.
    """
    wide = means.astype(np.float64)
    mean = wide.mean(axis=axis)
    kept = {name: mean.astype(np.float32)}
    if means.shape[axis] < 2:
        return kept
    off = np.subtract(wide, np.expand_dims(mean, axis), out=wide)
    off[np.isnan(off)] = 0
    rows = (axis,) if off.shape[-1] < SHORT else (axis, off.ndim - 1)
    most = np.maximum(off.max(axis=rows, keepdims=True), -off.min(axis=rows, keepdims=True))
    step = most / LARGEST
    counts = np.divide(off, np.where(step > 0, step, 1), out=off)
    kept[f"{name}{DIFFERENCES}"] = np.rint(counts, out=counts).astype(np.int16)
    kept[f"{name}{STEP}"] = step.astype(np.float32)
    return kept


def of_groups(arrays: Mapping[str, np.ndarray], name: str, kept: Sequence[int]) -> np.ndarray:
    """Return one layer's mean over some groups; a mean without groups is returned unchanged."""
    groups = arrays.get(f"{name}{DIFFERENCES}")
    if groups is None:
        return arrays[name]
    rest = [group for group in range(len(groups)) if group not in kept]
    few, sign = (kept, 1) if len(kept) <= len(rest) else (rest, -1)  # the differences sum to 0
    off = groups[list(few)].sum(axis=0, dtype=np.int32)
    step = arrays[f"{name}{STEP}"][0] * np.float32(sign / len(kept))
    return np.asarray(arrays[name] + off * step, dtype=np.float32)


def each_group(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Return the mean of each group ``[group, ...]``; a mean without groups is a single group."""
    groups = arrays.get(f"{name}{DIFFERENCES}")
    if groups is None:
        return arrays[name][None]
    return arrays[name] + groups * arrays[f"{name}{STEP}"]
