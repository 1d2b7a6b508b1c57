"""What arrays and tensors share of attention: which keys a query sees, which heads share keys."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

__all__ = ["first_visible", "is_hidden", "only_visible", "repeat_kv"]


def first_visible(n: int, skip: int, window: int | None) -> int:
    """Return the first key that the query at ``n`` sees, from ``skip`` and the sliding window."""
    return skip if window is None else max(skip, n - window + 1)


def is_hidden(query: Any, key: Any, window: int | None) -> Any:
    """Return whether queries may not see keys: later ones, and those before a sliding window.

    ``query`` and ``key`` are positions, as NumPy arrays or as tensors; they are broadcast.
    """
    hidden = key > query
    return hidden if window is None else hidden | (key <= query - window)


def only_visible(
    values: Float[np.ndarray, "*batch query key"], window: int | None = None
) -> Float[np.ndarray, "*batch query key"]:
    """Return values of as many queries as keys, NaN where the query does not see the key."""
    positions = np.arange(values.shape[-1])
    return np.where(is_hidden(positions[:, None], positions, window), np.nan, values)


def repeat_kv(x: Any, heads: int, axis: int = 0) -> Any:
    """Return an array or a tensor over key heads as one over ``heads`` query heads.

    ``head // kv`` neighbouring query heads share each key head of ``axis``.
    """
    repeat = getattr(x, "repeat_interleave", None) or x.repeat  # that of a tensor means another
    return repeat(heads // x.shape[axis], axis)
