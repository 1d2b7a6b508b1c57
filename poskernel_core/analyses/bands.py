"""Mean scores near the main diagonal: their part by position, and their kinks."""

from __future__ import annotations

import numpy as np

from poskernel_core.config import BAND

__all__ = ["contrasts", "position_profile"]


def position_profile(queries: np.ndarray, keys: np.ndarray, scale: float, start: int) -> np.ndarray:
    """Return the mean of ``scale q_n . m_{n-k}`` over ``n``, by offset ``k``, ``[head, band]``.

    Args:
        queries: mean queries ``[head, pos, d]``.
        keys: mean keys ``[kv, pos, d]``.
        scale: factor of the score.
        start: the first position that counts (1 leaves out a start token).

    Returns:
        The profile; NaN at offsets without a pair of positions.
    """
    q = queries[:, start:].astype(np.float64)
    k = keys[:, start:].astype(np.float64).repeat(len(queries) // len(keys), axis=0)
    length = q.shape[1]
    profile = np.full((len(q), 2 * BAND + 1), np.nan)
    for offset in range(max(-BAND, 1 - length), min(BAND, length - 1) + 1):
        late, early = max(offset, 0), max(-offset, 0)
        count = length - late - early
        pairs = q[:, late : late + count] * k[:, early : early + count]
        profile[:, BAND + offset] = scale * pairs.sum(axis=(1, 2)) / count
    return profile


def contrasts(profile: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a profile ``[..., band]`` at offsets 0 and 1, against the line through -1 and 2."""
    before, here, one, two = (profile[..., BAND + offset] for offset in (-1, 0, 1, 2))
    return here - (2 * before + two) / 3, one - (before + 2 * two) / 3
