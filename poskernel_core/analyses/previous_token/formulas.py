"""Mean scores near the main diagonal: their part by position, and their kinks."""

from __future__ import annotations

import numpy as np

from poskernel_core.common.attention import ScoreRule, repeat_kv
from poskernel_core.common.specs import BAND

__all__ = ["contrasts", "position_profile", "without_bias"]


def position_profile(
    queries: np.ndarray, keys: np.ndarray, rule: ScoreRule | float, start: int
) -> np.ndarray:
    """Return the mean score of ``q_n`` and ``m_{n-k}`` over ``n``, by offset, ``[head, band]``.

    A soft cap is applied to the score of the two means.

    Args:
        queries: mean queries ``[head, pos, d]``.
        keys: mean keys ``[kv, pos, d]``, of the same windows.
        rule: how the layer makes scores; a number is the scale alone.
        start: the first position that counts (1 leaves out a start token).

    Returns:
        The profile; NaN at offsets without a pair of positions.
    """
    q = queries[:, start:].astype(np.float64)
    k = repeat_kv(keys[:, start:].astype(np.float64), len(queries))
    length = q.shape[1]
    rule = rule if isinstance(rule, ScoreRule) else ScoreRule(rule)
    profile = np.full((len(q), 2 * BAND + 1), np.nan)
    for offset in range(max(-BAND, 1 - length), min(BAND, length - 1) + 1):
        late, early = max(offset, 0), max(-offset, 0)
        count = length - late - early
        pairs = q[:, late : late + count] * k[:, early : early + count]
        if rule.plain:
            profile[:, BAND + offset] = rule.scale * pairs.sum(axis=(1, 2)) / count
            continue
        scores = rule.capped(rule.scale * pairs.sum(axis=2))
        if rule.slopes is not None:
            bias = rule.slopes.bias(start + length)[:, start:]
            scores = scores + bias[:, early : early + count] - bias[:, late : late + count]
        profile[:, BAND + offset] = scores.sum(axis=1) / count
    return profile


def contrasts(profile: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a profile ``[..., band]`` at offsets 0 and 1, against the line through -1 and 2."""
    before, here, one, two = (profile[..., BAND + offset] for offset in (-1, 0, 1, 2))
    return here - (2 * before + two) / 3, one - (before + 2 * two) / 3


def without_bias(position: np.ndarray, scores: np.ndarray, texts: int) -> np.ndarray:
    """Return a position profile without the content that means of few texts still hold.

    The product of two means over ``N`` texts holds a share ``1/N`` of the mean product:
    ``E[q_mean . k_mean] = p + (s - p) / N``, solved for the position part ``p``. It is the mean
    over pairs of a query and a key of different texts.
    """
    return (texts * position - scores) / (texts - 1) if texts > 1 else position
