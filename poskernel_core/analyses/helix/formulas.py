"""The mathematics of extended positional embeddings, in NumPy.

Positions are samples (rows), residual dimensions are variables (columns).
"""

import numpy as np
from jaxtyping import Float
from pydantic import Field

from poskernel_core.analyses.base import Params
from poskernel_core.common.axes import Components, PositionRows
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.specs import CorpusSpec, Gather, RunSpec, default_positions
from poskernel_core.data.made import REPEATED

GROUP_SIZES = (5, 10, 20, 50, 100)
"""Group sizes of the post, in positions."""

STREAM_SUMS: tuple[Gather, ...] = ("residuals", "normed", "positions")
"""The sums that a pass gathers if it is only for the helix."""


FAR_OUT = 8.0
"""Distance from the centre, in medians, beyond which a position counts as far out."""


class StreamParams(Params):
    """Parameters of the prompts that extended positional embeddings are measured on."""

    tokens: int = Field(100, ge=1, le=1000, description="number of repeated tokens, one per text")
    leave_out: int = Field(
        0, ge=0, le=32, description="first positions left out of the principal components"
    )


def repeated_run(run: RunSpec, tokens: int) -> RunSpec:
    """Return the pass over prompts of one repeated token each, without a start token."""
    return RunSpec(
        model=run.model,
        corpus=CorpusSpec(name=REPEATED),
        context=run.context,
        windows=tokens,
        start_token=False,
        dtype=run.dtype,
        seed=run.seed,
        positions=default_positions(run.context),
        gather=STREAM_SUMS,
    )


def first_position(context: int, start_token: bool, leave_out: int) -> int:
    """Return the first position that counts; the start token's is an outlier and never counts."""
    first = max(leave_out, int(start_token))
    if context - first < 4:
        raise BadRequest(
            f"A context of {context} tokens leaves fewer than 4 positions: choose a "
            "longer one, or leave out fewer."
        )
    return first


def centred(rows: PositionRows) -> PositionRows:
    """Return the rows minus their mean over positions, in float64."""
    wide = np.asarray(rows, dtype=np.float64)
    return wide - wide.mean(axis=0)


def principal(rows: PositionRows, count: int) -> tuple[Components, np.ndarray]:
    """Return the first principal components of centred rows, and their shares of the variance.

    Returns:
        components: unit vectors ``[component, model]``, the largest variance first; as many as
            asked for, zero where the rows have fewer dimensions.
        shares: explained variance ``[component]``, 0 to 1 (all 0 where nothing varies).
    """
    from scipy.linalg import eigh

    size = rows.shape[1]
    values, vectors = eigh(rows.T @ rows, subset_by_index=_last(size, min(count, *rows.shape)))
    total = float(np.square(rows).sum())
    components, shares = np.zeros((count, size)), np.zeros(count)
    components[: len(values)] = vectors.T[::-1]
    if total > 0:
        shares[: len(values)] = np.maximum(values[::-1], 0) / total
    return components, shares


def left_directions(rows: PositionRows, count: int) -> Float[np.ndarray, "pos component"]:
    """Return the first left singular vectors, directions in position space, ``[pos, component]``.

    The rows are not centred, as in the author's code.
    """
    from scipy.linalg import eigh

    wide = np.asarray(rows, dtype=np.float64)
    _, vectors = eigh(wide.T @ wide, subset_by_index=_last(wide.shape[1], count))
    return np.linalg.qr(wide @ vectors[:, ::-1])[0]


def _last(size: int, count: int) -> list[int]:
    return [size - min(count, size), size - 1]


def canonical_angles(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the canonical angles between the spans of two sets of columns, in degrees, ascending.

    ``a [dimension, k]`` and ``b [dimension, k]``; the angles are the ``arccos`` of the singular
    values of ``A^T B`` for orthonormal bases of both.
    """
    from scipy.linalg import subspace_angles

    return np.degrees(subspace_angles(a, b))[::-1]


def far_out(points: Float[np.ndarray, "pos component"]) -> list[int]:
    """Return the outlying rows, which are often the first positions of a text.

    A row is far out if its distance from the centre, the componentwise median, is more than
    ``FAR_OUT`` times the median distance.
    """
    distance = np.linalg.norm(points - np.median(points, axis=0), axis=1)
    return [int(row) for row in np.flatnonzero(distance > FAR_OUT * np.median(distance))]


def far_share(rows: PositionRows, far: float) -> float:
    """Return the share of entries whose size exceeds ``far`` times their rms."""
    rms = float(np.sqrt(np.square(rows).mean()))
    return float((np.abs(rows) > far * rms).mean())


def group_means(rows: np.ndarray, size: int) -> np.ndarray:
    """Return the means of consecutive groups of rows; the last group may be smaller."""
    starts = np.arange(0, len(rows), size)
    counts = np.diff([*starts, len(rows)])
    return np.add.reduceat(rows, starts, axis=0) / counts[:, None]
