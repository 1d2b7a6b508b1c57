"""A compact block of numbers of all heads, from which the browser draws any head at once.

A block says itself what it holds: the length of a JSON header (4 bytes), the header (padded to
8 bytes), then 16-bit numbers ``[value, layer, head, bin]``. Offsets are exact up to 32, and are
then grouped into bins of growing width; a number is the mean over its bin.
"""

import json

import numpy as np
from jaxtyping import Float, Int

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import Result
from poskernel_core.export.files import identity

EXACT = 32
GROWTH = 1.125
"""Ratio of the ends of a bin of several offsets."""

VALUES = {
    "kernel": ("kernel", "kernel_low", "kernel_high", "observed"),
    "previous-token": ("profile",),
}
"""The values in a block, by question; standard errors follow under ``<name>_error``."""


def edges(length: int) -> Int[np.ndarray, " edge"]:
    """Return the first offset of each bin of ``length`` offsets, and ``length`` itself."""
    starts = [*range(min(EXACT + 2, length))]
    while length > EXACT + 2 and (last := max(starts[-1] + 1, round(starts[-1] * GROWTH))) < length:
        starts.append(last)
    return np.array([*starts, length])


def binned(values: Float[np.ndarray, "layer head offset"]) -> Float[np.ndarray, "layer head bin"]:
    """Return the mean of values over each bin of offsets."""
    ends = edges(values.shape[-1])
    return np.add.reduceat(values, ends[:-1], axis=-1) / np.diff(ends)


def packed(result: Result) -> bytes:
    """Return the numbers of all heads by offset as a block."""
    if result.analysis not in VALUES or len(result.axes[VALUES[result.analysis][0]]) != 3:
        raise BadRequest(f"Expected kernels or profiles of all heads, got {result.analysis!r}.")
    arrays = {}
    for name in VALUES[result.analysis]:
        for kind, values in (("", result.values), ("_error", result.errors)):
            if name in values and np.isfinite(values[name]).any():
                arrays[name + kind] = binned(_by_offset(result, values[name]))
    layers, heads, _ = next(iter(arrays.values())).shape
    length = _by_offset(result, result.values[VALUES[result.analysis][0]]).shape[-1]
    header = identity(result) | {
        "question": result.analysis,
        "names": list(arrays),
        "shape": [layers, heads],
        "offsets": edges(length).tolist(),
    }
    text = json.dumps(header).encode()
    text += b" " * (-(4 + len(text)) % 8)
    numbers = np.stack([*arrays.values()]).astype("<f2")
    return len(text).to_bytes(4, "little") + text + numbers.tobytes()


def _by_offset(
    result: Result, values: Float[np.ndarray, "layer head place"]
) -> Float[np.ndarray, "layer head offset"]:
    """Return values by offset, nearest first; those by key are turned, without skipped keys."""
    if result.analysis != "kernel":
        return values
    first, query = int(result.params["skip"]), int(result.params["query"])
    return values[..., first : query + 1][..., ::-1]
