"""Patterns that are the same for every text, shares kept, and how many heads a loss allows."""

import numpy as np
from jaxtyping import Float, Int

KERNEL, MEAN_PATTERN, EQUIVARIANT = "kernel", "mean pattern", "equivariant kernel"
UNIFORM, ZERO, MEAN_OUTPUT = "uniform", "zero", "mean output"
"""What takes a head's place; lists begin with the kernel and end with the mean output."""

Rows = Float[np.ndarray, "*batch query key"]


def spread(kernel: Rows, observed: Rows, skip: int) -> Rows:
    """Return the rows of a head that attends by a kernel alone.

    The first ``skip`` keys keep the mean ``observed`` attention, as do all keys of the first
    ``skip`` queries. The mean mass of the other keys is spread by the ``kernel``, whose rows sum to
    1 over the visible keys from ``skip`` on.
    """
    rows = kernel * observed[..., skip:].sum(axis=-1, keepdims=True)
    rows[..., :skip] = observed[..., :skip]
    rows[..., :skip, :] = observed[..., :skip, :]
    return rows


def shares_kept(cost: Float[np.ndarray, " replacement *batch"]) -> Float[np.ndarray, " *batch"]:
    """Return ``1 - cost(kernel) / cost(mean output)``; NaN where that is not finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = 1 - cost[0] / cost[-1]
    return np.asarray(np.where(np.isfinite(share), share, np.nan))


def numbers_of_heads(total: int) -> Int[np.ndarray, " heads"]:
    """Return the numbers of heads that are replaced at once: ten even steps, and fewer."""
    steps = [np.geomspace(1, total, 7), np.linspace(total / 10, total, 10)]
    return np.unique(np.concatenate(steps).round().clip(1).astype(np.int64))


def heads_for(
    limit: float, heads: Int[np.ndarray, " heads"], change: Float[np.ndarray, " heads"]
) -> float:
    """Return how many heads can be replaced until the rise of the loss first passes a limit.

    The rise is 0 without heads, and on a line between two numbers of heads; all heads if it never
    passes.
    """
    x, y = np.append(0, heads), np.append(0.0, change)
    over = np.flatnonzero(y > limit)
    if not len(over):
        return float(x[-1])
    at = int(over[0])
    return float(x[at - 1] + (x[at] - x[at - 1]) * (limit - y[at - 1]) / (y[at] - y[at - 1]))
