"""The mathematics of positional kernels, on NumPy arrays.

With the mean key ``m_i = E_text[k_i]`` each score splits exactly into position and content,
``s(n,i) = a(n,i) + c(n,i)``, ``a(n,i) = scale * q_n . m_i`` (with a soft cap the capped score of
the mean key; with ALiBi its bias is part of ``a``). The positional kernel is
``K(n,i) = softmax_i a(n,i)`` over the visible keys ``i >= skip``.

Source: "Positional kernels of attention heads" (its formulas for the positional pattern and the
effective token count). The mean key is taken after the rotary rotation, so one definition serves
every architecture.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from poskernel_core.common.attention import ScoreRule

__all__ = [
    "KINDS",
    "LOCAL_TOKENS",
    "aligned_distance",
    "by_offset",
    "classify",
    "consistency",
    "consistency_error",
    "effective_tokens",
    "half_mass_distance",
    "kernel_rows",
    "leave_one_out",
    "total_variation",
]

KINDS = ("local", "slow decay", "uniform")
LOCAL_TOKENS = 10
QUERY_GROUPS = 8


def kernel_rows(
    queries: Float[np.ndarray, "head sample d"],
    mean_keys: Float[np.ndarray, "kv key d"],
    rule: ScoreRule | float,
    first: int = 0,
) -> Float[np.ndarray, "head sample key"]:
    """Return ``softmax_i a(n,i)`` over the keys given (the visible ones), float64.

    ``a(n,i)`` is the score of the mean key: ``scale * q . m_i``, with the layer's soft cap and
    slopes where ``rule`` has any. The last key is the query's own position; ``first`` is the
    first one's. ``head // kv`` query heads share each key head, in order.
    """
    heads, samples, width = queries.shape
    shared = queries.reshape(mean_keys.shape[0], -1, width).astype(np.float64)
    rule = rule if isinstance(rule, ScoreRule) else ScoreRule(rule)
    products = shared @ mean_keys.astype(np.float64).transpose(0, 2, 1)
    scores = rule.capped(rule.scale * products)
    if rule.slopes is not None:
        last = first + mean_keys.shape[1]
        bias = rule.bias(slice(last - 1, last), slice(first, last), scores)
        scores = (scores.reshape(heads, samples, -1) + bias).reshape(scores.shape)
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores.reshape(heads, samples, -1)


def effective_tokens(kernel: Float[np.ndarray, "*batch key"]) -> Float[np.ndarray, "*batch"]:
    """Return ``ETC = 1 / sum_i K_i^2``, in tokens, between 1 and the number of visible keys."""
    return np.asarray(1 / np.square(kernel).sum(axis=-1))


def half_mass_distance(kernel: Float[np.ndarray, "*batch key"]) -> Int[np.ndarray, "*batch"]:
    """Return the smallest offset within which half of the mass lies, in tokens.

    The last key must be the query's own position.
    """
    mass = np.cumsum(kernel[..., ::-1], axis=-1)
    reached = mass >= 0.5 * mass[..., -1:] - 1e-12
    return np.asarray(reached.argmax(axis=-1))


def classify(
    local_mass: np.ndarray,
    etc: np.ndarray,
    visible: np.ndarray,
    local_share: float = 0.5,
    uniform_share: float = 0.5,
) -> Int[np.ndarray, "*batch"]:
    """Return the kind of each kernel as an index into :data:`KINDS`, -1 where there is none.

    ``local`` if at least ``local_share`` of the mass lies in the last tokens; else ``uniform`` if
    ``ETC >= uniform_share * visible``; else ``slow decay`` (a choice).
    """
    kind = np.where(etc >= uniform_share * visible, 2, 1)
    kind = np.where(local_mass >= local_share, 0, kind)
    return np.where(np.isnan(etc), -1, kind)


def total_variation(
    left: Float[np.ndarray, "*batch key"], right: Float[np.ndarray, "*batch key"]
) -> Float[np.ndarray, "*batch"]:
    """Return ``TV = 0.5 * sum |K - K'|`` of distributions, in [0, 1]."""
    return np.asarray(0.5 * np.abs(left - right).sum(axis=-1))


def consistency(kernels: Float[np.ndarray, "head sample key"]) -> Float[np.ndarray, " head"]:
    """Return the mean TV distance over all pairs of queries, in [0, 1]; NaN for one query.

    For sorted values ``sum_{a<b} |x_a - x_b| = sum_j (2j - S + 1) x_(j)``, so the pairs need not
    be formed.
    """
    count = kernels.shape[1]
    if count < 2:
        return np.full(kernels.shape[0], np.nan)
    ranks = np.sort(kernels.astype(np.float32).transpose(0, 2, 1), axis=-1)
    weights = (2 * np.arange(count) - count + 1).astype(np.float32)
    return 0.5 * (ranks @ weights).sum(axis=-1, dtype=np.float64) / (count * (count - 1) / 2)


def consistency_error(kernels: Float[np.ndarray, "head sample key"]) -> Float[np.ndarray, " head"]:
    """Return the standard error of :func:`consistency`, from groups of independent queries."""
    heads, count, keys = kernels.shape
    groups = min(QUERY_GROUPS, count // 2)
    if groups < 2:
        return np.full(heads, np.nan)
    size = count // groups
    split = kernels[:, : groups * size].reshape(heads * groups, size, keys)
    return consistency(split).reshape(heads, groups).std(axis=1, ddof=1) / np.sqrt(groups)


def leave_one_out(
    kernels: Float[np.ndarray, "head sample key"],
) -> Float[np.ndarray, "head sample key"]:
    """Return the mean kernels over all queries but one; needs two queries."""
    count = kernels.shape[1]
    return (kernels.sum(axis=1, keepdims=True) - kernels) / (count - 1)


def by_offset(
    kernels: Float[np.ndarray, "head query key"], positions: Int[np.ndarray, " query"]
) -> Float[np.ndarray, "head query offset"]:
    """Return the kernels indexed by the offset ``n - i``; 0 where there is no key."""
    turned = np.zeros_like(kernels)
    for place, n in enumerate(positions):
        turned[:, place, : n + 1] = kernels[:, place, n::-1]
    return turned


def aligned_distance(
    turned: Float[np.ndarray, "head query offset"],
    positions: Int[np.ndarray, " query"],
    skip: int,
) -> Float[np.ndarray, "head query query2"]:
    """Return the TV distance between kernels of different ``n``, aligned by offset.

    Both are renormalised on their common support, the offsets that both positions see. Positions
    that see no key give NaN.
    """
    heads, count, _ = turned.shape
    distance = np.full((heads, count, count), np.nan)
    for low in np.flatnonzero(positions >= skip):
        support = positions[low] - skip + 1
        rows = turned[:, low:, :support]
        mass = rows.sum(axis=-1, keepdims=True)
        shares = np.divide(rows, mass, out=np.zeros_like(rows), where=mass > 0)
        gap = total_variation(shares, np.broadcast_to(shares[:, :1], shares.shape))
        gap = np.where(mass[..., 0] > 0, gap, 1.0)
        distance[:, low, low:] = distance[:, low:, low] = gap
    return distance
