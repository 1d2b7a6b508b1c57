"""The mathematics of positional kernels, on NumPy arrays.

With the mean key ``m_i = E_text[k_i]`` each score splits exactly into position and content,
``s(n,i) = a(n,i) + c(n,i)`` with ``a(n,i) = scale * q_n . m_i``. With a soft cap, ``a`` is the
capped score of the mean key; with ALiBi, ``a`` includes the bias. The positional kernel is
``K(n,i) = softmax_i a(n,i)`` over the visible keys ``i >= skip``.

Source: "Positional kernels of attention heads" (its formulas for the positional pattern and the
effective token count). The mean key is taken after the rotary rotation, so one definition serves
every architecture.
"""

from functools import partial
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from jaxtyping import Float, Int

from poskernel_core.common import arithmetic
from poskernel_core.common.attention import ScoreRule

KINDS = ("local", "slow decay", "uniform")
LOCAL_TOKENS = 10
CELLS = {True: 2**17, False: 2**20}
"""Kernel entries computed at a time: in NumPy half a megabyte, which the cache of a core holds."""


def kernel_rows(
    queries: Float[np.ndarray, "head sample d"],
    mean_keys: Float[np.ndarray, "kv key d"],
    rule: ScoreRule | float,
    first: int = 0,
) -> Float[np.ndarray, "head sample key"]:
    """Return ``softmax_i a(n,i)`` over the given (visible) keys, float64.

    ``a(n,i)`` is the score of the mean key: ``scale * q . m_i``, with the layer's soft cap and
    slopes where ``rule`` has any. The last key is at the query's own position; ``first`` is the
    position of the first key. Each key head serves ``head // kv`` successive query heads.
    """
    weights = _weights(queries.astype(np.float64), mean_keys.astype(np.float64), rule, first)
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def _weights(
    queries: Float[Any, "head sample d"],
    mean_keys: Float[Any, "kv key d"],
    rule: ScoreRule | float,
    first: int,
) -> Float[Any, "head sample key"]:
    """Return unnormalised kernels; the largest number of each row is 1.

    Arrays are NumPy's or torch's, of one type, which is that of the kernels.
    """
    heads, samples, width = queries.shape
    shared = queries.reshape(mean_keys.shape[0], -1, width)
    rule = rule if isinstance(rule, ScoreRule) else ScoreRule(rule)
    scores = rule.capped(rule.scale * (shared @ mean_keys.mT))
    xp = array_namespace(scores)
    if rule.slopes is not None:
        last = first + mean_keys.shape[1]
        bias = rule.bias(slice(last - 1, last), slice(first, last), scores)
        wide = scores.reshape(heads, samples, -1) + xp.astype(bias, scores.dtype)
        scores = wide.reshape(scores.shape)
    scores -= xp.max(scores, axis=-1, keepdims=True)
    return xp.exp(scores).reshape(heads, samples, -1)


def effective_tokens(kernel: Float[np.ndarray, "*batch key"]) -> Float[np.ndarray, "*batch"]:
    """Return ``ETC = 1 / sum_i K_i^2``, in tokens, between 1 and the number of visible keys."""
    return np.asarray(1 / np.square(kernel).sum(axis=-1))


def half_mass_distance(kernel: Float[np.ndarray, "*batch key"]) -> Float[np.ndarray, "*batch"]:
    """Return the offset within which half of the mass lies, in tokens.

    The mass at offset ``k`` is spread evenly from ``k`` to ``k + 1``. The last key must be at the
    query's own position.
    """
    turned = kernel[..., ::-1]
    mass = np.cumsum(turned, axis=-1)
    half = 0.5 * mass[..., -1:]
    token = (mass >= half).argmax(axis=-1)[..., None]
    own, up_to = (np.take_along_axis(array, token, axis=-1) for array in (turned, mass))
    beyond = np.divide(up_to - half, own, out=np.zeros_like(up_to), where=own > 0)
    return np.asarray((token + 1 - beyond)[..., 0])


def classify(
    local_mass: np.ndarray,
    etc: np.ndarray,
    visible: np.ndarray,
    local_share: float = 0.5,
    uniform_share: float = 0.5,
) -> Int[np.ndarray, "*batch"]:
    """Return the kind of each kernel as an index into :data:`KINDS`, -1 where there is none.

    A kernel is ``local`` if at least ``local_share`` of its mass lies in the last tokens; else
    ``uniform`` if ``ETC >= uniform_share * visible``; else ``slow decay``. This is our choice.
    """
    kind = np.where(etc >= uniform_share * visible, 2, 1)
    kind = np.where(local_mass >= local_share, 0, kind)
    return np.where(np.isnan(etc), -1, kind)


def total_variation(
    left: Float[np.ndarray, "*batch key"], right: Float[np.ndarray, "*batch key"]
) -> Float[np.ndarray, "*batch"]:
    """Return ``TV = 0.5 * sum |K - K'|`` of distributions, in [0, 1]."""
    return np.asarray(0.5 * np.abs(left - right).sum(axis=-1))


def pairwise_distances(
    kernels: Float[np.ndarray, "head key"],
) -> Float[np.ndarray, "head other"]:
    """Return the TV distance of every pair of kernels."""
    apart = np.zeros((len(kernels), len(kernels)))
    for head, one in enumerate(kernels):
        others = kernels[head + 1 :]
        apart[head, head + 1 :] = total_variation(others, np.broadcast_to(one, others.shape))
    return apart + apart.T


def mean_kernels(
    queries: Float[np.ndarray, "head sample d"],
    mean_keys: Float[np.ndarray, "kv key d"],
    rule: ScoreRule,
    first: int,
    groups: int,
) -> tuple[Float[np.ndarray, "head key"], Float[np.ndarray, " head"]]:
    """Return the kernels' means over the queries, and the query variation of each head.

    Arguments as for :func:`kernel_rows` and :func:`query_variation`. Scores and weights are in 32
    bits, which changes a number by some millionths (at scores of 50, an entry by a hundred
    thousandth), and its error by less than a thousandth. It works on few key heads at a time, so
    that their kernels fit into the processor's cache.
    """
    means, variation = arithmetic.carry_out(
        partial(_means, rule, first, groups), queries, mean_keys
    )
    return means / means.sum(axis=-1, keepdims=True), variation  # shares to 64 bits


def _means(
    rule: ScoreRule,
    first: int,
    groups: int,
    queries: Float[Any, "head sample d"],
    mean_keys: Float[Any, "kv key d"],
) -> tuple[Float[np.ndarray, "head key"], Float[np.ndarray, " head"]]:
    shared, samples, width = len(queries) // len(mean_keys), queries.shape[1], mean_keys.shape[1]
    means, variation = np.empty((len(queries), width)), np.full(len(queries), np.nan)
    size = max(1, CELLS[isinstance(queries, np.ndarray)] // (shared * samples * width))
    for place in range(0, len(mean_keys), size):
        heads = slice(place * shared, (place + size) * shared)
        own = mean_keys[place : place + size]
        weights = _weights(queries[heads], own, rule.of_heads(heads), first)
        factors = 1 / array_namespace(weights).sum(weights, axis=-1, keepdims=True)
        means[heads] = arithmetic.taken((factors.mT @ weights)[:, 0])
        if groups > 1:
            weights *= factors
            variation[heads] = arithmetic.taken(query_variation(weights, groups))
    return means, variation


def query_variation(kernels: Float[Any, "head sample key"], groups: int) -> Float[Any, " head"]:
    """Return the mean TV distance between queries of different groups, in [0, 1].

    Sample ``s`` is in group ``s % groups``. Each query is paired with the queries of the same index
    in the next two groups (cyclically). NaN without pairs. Arrays are NumPy's or torch's.
    """
    heads, count, keys = kernels.shape
    xp, groups = array_namespace(kernels), min(groups, count)
    total, pairs = xp.zeros_like(kernels[:, 0, 0]), 0
    if groups < 2:
        return total + np.nan
    split = kernels[:, : count // groups * groups].reshape(heads, -1, groups, keys)
    for apart in (1, 2) if groups > 2 else (1,):
        for low, high in ((slice(-apart), slice(apart, None)), (slice(apart), slice(-apart, None))):
            gap = xp.abs(split[:, :, high] - split[:, :, low])
            total += xp.sum(gap.reshape(heads, -1), axis=-1)
            pairs += gap.shape[1] * gap.shape[2]
    return 0.5 * total / pairs


def by_offset(
    kernels: Float[np.ndarray, "head query key"], positions: Int[np.ndarray, " query"]
) -> Float[np.ndarray, "head query offset"]:
    """Return the kernels indexed by the offset ``n - i``; 0 where there is no key."""
    turned = np.zeros_like(kernels)
    for place, n in enumerate(positions):
        turned[:, place, : n + 1] = kernels[:, place, n::-1]
    return turned


def aligned_distance(
    turned: Float[np.ndarray, "head query offset"], positions: Int[np.ndarray, " query"], skip: int
) -> Float[np.ndarray, "head query query2"]:
    """Return the TV distance between kernels of different ``n``, aligned by offset.

    Both kernels are renormalised over the offsets that both positions see. Positions that see no
    key give NaN.
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
