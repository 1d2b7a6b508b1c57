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
    """Return a result as long tables: one row per element, one column per axis and value.

    Values with fewer axes than a table's are repeated along the axes that they lack; values whose
    axes fit no table so far begin another, after an empty line.
    """
    names = sorted(result.values, key=lambda name: -len(result.axes[name]))
    tables: list[list[str]] = []
    for name in names:
        fits = (t for t in tables if set(result.axes[name]) <= set(result.axes[t[0]]))
        table = next(fits, None)
        if table is None:
            tables.append([name])
        else:
            table.append(name)
    text = io.StringIO()
    for place, table in enumerate(tables):
        text.write("\n" if place else "")
        _write_table(result, [name for name in result.values if name in table], text)
    return text.getvalue()


def _write_table(result: Result, names: list[str], text: io.StringIO) -> None:
    axes = max((result.axes[name] for name in names), key=len)
    shapes = {
        axis: size
        for name in names
        for axis, size in zip(result.axes[name], result.values[name].shape, strict=True)
    }
    grids = np.meshgrid(
        *[result.coordinates.get(axis, np.arange(shapes[axis])) for axis in axes], indexing="ij"
    )
    columns = {axis: grid.ravel() for axis, grid in zip(axes, grids, strict=True)}
    full = tuple(shapes[axis] for axis in axes)
    for name in names:
        value = _worded(result, name, result.values[name])
        columns[f"{name} ({result.units[name]})"] = _spread(value, result.axes[name], axes, full)
        if name in result.errors:
            error = _spread(result.errors[name], result.axes[name], axes, full)
            columns[f"{name} standard error"] = error
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))


def _worded(result: Result, name: str, value: np.ndarray) -> np.ndarray:
    if name not in result.labels:
        return value
    return np.array([*result.labels[name], ""], dtype=object).take(value)


def _spread(
    value: np.ndarray, has: tuple[str, ...], axes: tuple[str, ...], full: tuple[int, ...]
) -> np.ndarray:
    shape = [size if axis in has else 1 for axis, size in zip(axes, full, strict=True)]
    return np.broadcast_to(np.asarray(value).reshape(shape), full).ravel()
