"""A result as a file: NumPy arrays, or a long table."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import numpy as np

from poskernel_core.analyses.base import Result

__all__ = ["to_csv", "to_npz"]


def to_npz(result: Result) -> bytes:
    """Return a result's arrays, errors and provenance as the bytes of a .npz file."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {**result.values, **result.coordinates}
    arrays |= {f"{name}_error": array for name, array in result.errors.items()}
    arrays["about"] = np.array(json.dumps(result.as_json()["run"]))
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def to_csv(result: Result) -> str:
    """Return a result as a long table: one row per element, one column per axis and value.

    Values with fewer axes than the largest are repeated along the axes that they lack.
    """
    axes = max(result.axes.values(), key=len)
    shapes = {
        a: n
        for name, v in result.values.items()
        for a, n in zip(result.axes[name], v.shape, strict=True)
    }
    columns: dict[str, np.ndarray] = {}
    grids = np.meshgrid(
        *[result.coordinates.get(axis, np.arange(shapes[axis])) for axis in axes], indexing="ij"
    )
    columns |= {axis: grid.ravel() for axis, grid in zip(axes, grids, strict=True)}
    full = tuple(shapes[axis] for axis in axes)
    for name, value in result.values.items():
        columns[f"{name} ({result.units[name]})"] = _spread(
            _worded(result, name, value), result.axes[name], axes, full
        )
        if name in result.errors:
            columns[f"{name} standard error"] = _spread(
                result.errors[name], result.axes[name], axes, full
            )
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return table.getvalue()


def _worded(result: Result, name: str, value: np.ndarray) -> np.ndarray:
    if name not in result.labels:
        return value
    return np.array([*result.labels[name], ""], dtype=object).take(value)


def _spread(
    value: np.ndarray, has: tuple[str, ...], axes: tuple[str, ...], full: tuple[int, ...]
) -> np.ndarray:
    shape = [size if axis in has else 1 for axis, size in zip(axes, full, strict=True)]
    return np.broadcast_to(np.asarray(value).reshape(shape), full).ravel()
