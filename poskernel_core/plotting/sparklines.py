"""Kernels as compact curves, one byte per point, which the browser draws in the grid's cells."""

import base64
from typing import Any

import numpy as np
from jaxtyping import Float

POINTS = 32
BLOCKS = "▁▂▃▄▅▆▇█"
MISSING = 255
"""The byte of all points of a head without a kernel; other bytes run from 0 to 254."""


def compact_curves(
    kernels: Float[np.ndarray, "layer head key"], query: int, first: int
) -> dict[str, Any]:
    """Return the kernels at a query position by offset, in a form for JSON.

    Offsets are grouped into at most 32 bins of about equal width on a log scale; a point is the
    mean over its bin. Every curve is scaled to its largest point.

    Returns:
        ``codes``, base64 of bytes ``[layer, head, point]``; ``starts``, the first offset of each
        bin, and ``last``, the last offset of all, in tokens; ``most``, the largest point of each
        head ``[layer][head]``, None where it has no kernel.
    """
    turned = kernels[..., first : query + 1][..., ::-1]
    length = turned.shape[-1]
    edges = np.unique(np.geomspace(1, length + 1, min(POINTS, length) + 1).round()).astype(int) - 1
    points = np.add.reduceat(turned, edges[:-1], axis=-1) / np.diff(edges)
    there = np.isfinite(points).all(axis=-1) & (points.max(axis=-1) > 0)
    most = np.where(there, points.max(axis=-1), 1.0)
    codes = np.round(254 * np.where(there[..., None], points, 0) / most[..., None])
    codes = np.where(there[..., None], codes, MISSING).astype(np.uint8)
    return {
        "codes": base64.b64encode(codes.tobytes()).decode("ascii"),
        "starts": edges[:-1].tolist(),
        "last": length - 1,
        "most": [
            [float(f"{value:.3g}") if known else None for value, known in zip(row, ok, strict=True)]
            for row, ok in zip(most, there, strict=True)
        ],
    }


def heights_of(curves: dict[str, Any]) -> Float[np.ndarray, "layer head point"]:
    """Return the points of compact curves, from 0 to 1; NaN where a head has no kernel."""
    codes = np.frombuffer(base64.b64decode(curves["codes"]), np.uint8)
    shaped = codes.reshape(len(curves["most"]), len(curves["most"][0]), -1)
    return np.where(shaped == MISSING, np.nan, shaped / 254)


def as_blocks(heights: Float[np.ndarray, " point"]) -> str:
    """Return the points of a curve, from 0 to 1, as a line of block characters."""
    return "".join(BLOCKS[round(height * (len(BLOCKS) - 1))] for height in heights)
