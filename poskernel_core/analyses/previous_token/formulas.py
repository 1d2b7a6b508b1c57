"""Mean scores near the main diagonal: their part by position, and contrasts."""

import numpy as np
from numpy.lib.stride_tricks import as_strided

from poskernel_core.common.attention import ScoreRule
from poskernel_core.common.specs import BAND

ROWS = 64
"""How many queries are multiplied at a time with the keys around them."""


def position_profile(
    queries: np.ndarray, keys: np.ndarray, rule: ScoreRule | float, start: int
) -> np.ndarray:
    """Return the mean score of ``q_n`` and ``m_{n-k}`` over ``n``, by offset, ``[head, band]``.

    A soft cap is applied to the score of the two means.

    Args:
        queries: mean queries ``[head, pos, d]``.
        keys: mean keys ``[kv, pos, d]``, of the same windows.
        rule: the layer's score rule; a number is a plain scale.
        start: the first position that counts (1 leaves out a start token).

    Returns:
        The profile; NaN at offsets without a pair of positions.
    """
    rule = rule if isinstance(rule, ScoreRule) else ScoreRule(rule)
    length, width = queries.shape[1] - start, queries.shape[2]
    q = queries[:, start:].astype(np.float64).reshape(len(keys), -1, length, width)
    k = np.pad(keys[:, None, start:].astype(np.float64), ((0, 0), (0, 0), (BAND, BAND), (0, 0)))
    sums = np.zeros((*q.shape[:2], 2 * BAND + 1))
    for first in range(0, length, ROWS):
        rows = q[:, :, first : first + ROWS]
        products = rows @ k[:, :, first : first + rows.shape[2] + 2 * BAND].swapaxes(-1, -2)
        sums += _along_diagonals(rule.capped(rule.scale * products))
    offsets = np.arange(-BAND, BAND + 1)
    count = np.maximum(length - np.abs(offsets), 0)
    profile = sums[..., ::-1].reshape(len(queries), -1)
    if rule.slopes is not None:
        profile += _bias_sums(rule.slopes.bias(start + length)[:, start:], offsets)
    return np.divide(profile, count, out=np.full(profile.shape, np.nan), where=count > 0)


def _along_diagonals(products: np.ndarray) -> np.ndarray:
    """Return the sums of ``[..., row, row + key]`` over the rows, ``[..., key]``."""
    rows, keys = products.shape[-2:]
    shape = (*products.shape[:-1], keys - rows + 1)
    *outer, down, right = products.strides
    return as_strided(products, shape, (*outer, down + right, right), writeable=False).sum(axis=-2)


def _bias_sums(bias: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the sums of ``bias_i - bias_n`` over the pairs of each offset ``n - i``."""
    length = bias.shape[1]
    total = np.pad(np.cumsum(bias, axis=1), ((0, 0), (1, 0)))
    here = np.where(np.abs(offsets) < length, offsets, 0)
    keys = total[:, length - np.maximum(here, 0)] - total[:, np.maximum(-here, 0)]
    return keys - keys[:, ::-1]


def contrasts(profile: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how far a profile ``[..., band]`` at 0 and at 1 is above the line through -1 and 2."""
    before, here, one, two = (profile[..., BAND + offset] for offset in (-1, 0, 1, 2))
    return here - (2 * before + two) / 3, one - (before + 2 * two) / 3


def without_bias(position: np.ndarray, scores: np.ndarray, texts: int) -> np.ndarray:
    """Remove from a position profile the content that remains in means of few texts.

    The product of two means over ``N`` texts contains ``1/N`` of the mean product ``s``:
    ``E[q_mean . k_mean] = p + (s - p) / N``. The result is ``p``, the position part. It is the mean
    over pairs of a query and a key from different texts.
    """
    return (texts * position - scores) / (texts - 1) if texts > 1 else position
