"""Attention captured by keys that are chosen beforehand, and caches that keep only such keys."""

import numpy as np
from jaxtyping import Bool, Float, Int

from poskernel_core.common.attention import repeat_kv

WAYS = ("kernel", "last keys", "first 4 and last keys", "best fixed choice")
"""The ways to choose keys beforehand, in the order of the axis ``way``."""

KERNEL, _, FIXED, _ = range(len(WAYS))

FIRST = 4
"""Keys that the third way always keeps (2309.17453)."""

HEADLINES = (16, 32, 64)
ENOUGH = 0.95
"""Share of attention from which a number of keys counts as enough."""


def budgets_up_to(visible: int) -> Int[np.ndarray, " budget"]:
    """Return numbers of keys about a factor of 1.4 apart, up to all that are visible."""
    powers = 2 ** np.arange(visible.bit_length())
    steps = np.union1d(powers, 3 * powers // 2)
    return np.union1d(steps[steps < visible], (*HEADLINES, visible))


def rankings(
    kernel: Float[np.ndarray, "head key"], observed: Float[np.ndarray, "head key"], low: int
) -> Int[np.ndarray, "way head key"]:
    """Return the visible keys in the order in which each way keeps them, as indices.

    The first key stands at position ``low``; ``kernel`` is infinite at keys that are always kept.
    """
    place = low + np.arange(kernel.shape[-1])
    fixed = np.where(place < FIRST, np.inf, place)
    worth = np.stack(np.broadcast_arrays(kernel, place, fixed, observed))
    return np.argsort(-worth, axis=-1, kind="stable")


def captured(
    order: Int[np.ndarray, "way head key"], attention: Float[np.ndarray, "head key"]
) -> Float[np.ndarray, "way head key"]:
    """Return the attention that the first 1, 2, ... keys of each order get together."""
    return np.take_along_axis(attention[None], order, axis=-1).cumsum(axis=-1)


def kept(
    held: Bool[np.ndarray, "budget kv key"],
    order: Int[np.ndarray, "head key"],
    budgets: Int[np.ndarray, " budget"],
) -> Bool[np.ndarray, "budget kv key"]:
    """Return which of the keys that a cache holds are kept.

    Each query head keeps the first keys of its order that are held, as many as the budget allows; a
    key stays in a key head's cache if any of its query heads keeps it.
    """
    order = order[None]
    there = np.take_along_axis(repeat_kv(held, order.shape[1], 1), order, axis=-1)
    there &= there.cumsum(axis=-1, dtype=np.int32) <= budgets[:, None, None]
    wanted = np.empty_like(there)
    np.put_along_axis(wanted, np.broadcast_to(order, there.shape), there, axis=-1)
    return np.asarray(wanted.reshape(*held.shape[:2], -1, held.shape[2]).any(axis=2))


def first_reaching(
    curve: Float[np.ndarray, "*batch point"], at: Float[np.ndarray, "*#batch point"]
) -> Float[np.ndarray, "*batch"]:
    """Return where a curve first reaches :data:`ENOUGH`, in between by straight lines from (0, 0).

    ``at`` are the curve's arguments; NaN where the curve is NaN.
    """
    curve, at = (np.insert(np.broadcast_to(array, curve.shape), 0, 0, -1) for array in (curve, at))
    after = (curve >= ENOUGH).argmax(axis=-1)[..., None]
    x, y, right, upper = (
        np.take_along_axis(array, place, axis=-1)[..., 0]
        for place in (after - 1, after)
        for array in (at, curve)
    )
    return np.asarray(x + (right - x) * (ENOUGH - y) / (upper - y))
