"""How many heads of a ranking are kept, and how many are enough."""

import numpy as np
from jaxtyping import Float, Int

ENOUGH = 0.8
"""The share of the behaviour that is enough."""
EVERY = 16
"""Up to so many heads, every number of them is tried."""


def numbers_of_heads(total: int) -> Int[np.ndarray, " first"]:
    """Return the numbers of heads that are tried: 0 to 16, then 24, 32, 48, 64, ..., and all."""
    powers = 2 ** np.arange(4, 31)
    coarse = np.column_stack([3 * powers // 2, 2 * powers]).ravel()
    every = np.concatenate([np.arange(EVERY + 1), coarse])
    return np.append(every[every < total], total).astype(np.int64)


def enough(counts: Int[np.ndarray, " first"], share: Float[np.ndarray, " first"]) -> float:
    """Return the least of the counts from which on the share stays at or above 0.8; else NaN."""
    below = np.flatnonzero(~(share >= ENOUGH))
    at = int(below[-1]) + 1 if len(below) else 0
    return float(counts[at]) if at < len(counts) else np.nan
