"""What arrays and tensors share of attention: which keys a query sees, which heads share keys.

:class:`ScoreRule` is how a layer turns products of queries and keys into scores, and which of them
count: scale, window, chunk, cap, slopes. It holds for whole scores and for those of mean keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float

__all__ = ["ScoreRule", "Slopes", "first_visible", "is_hidden", "only_visible", "repeat_kv"]


def first_visible(n: int, skip: int, window: int | None, chunk: int | None = None) -> int:
    """Return the first key that the query at ``n`` sees, from ``skip``, window and chunk."""
    low = skip if window is None else max(skip, n - window + 1)
    return low if chunk is None else max(low, n // chunk * chunk)


def is_hidden(query: Any, key: Any, window: int | None, chunk: int | None = None) -> Any:
    """Return whether queries may not see keys: later ones, those before a window, other chunks'.

    ``query`` and ``key`` are positions, as NumPy arrays or as tensors; they are broadcast.
    """
    hidden = key > query
    hidden = hidden if window is None else hidden | (key <= query - window)
    return hidden if chunk is None else hidden | (key // chunk != query // chunk)


def only_visible(
    values: Float[np.ndarray, "*batch query key"],
    window: int | None = None,
    chunk: int | None = None,
) -> Float[np.ndarray, "*batch query key"]:
    """Return values of as many queries as keys, NaN where the query does not see the key."""
    positions = np.arange(values.shape[-1])
    return np.where(is_hidden(positions[:, None], positions, window, chunk), np.nan, values)


@dataclass(frozen=True)
class Slopes:
    """ALiBi: a score falls by a head's slope with every token between query and key.

    Attributes:
        per_head: the slopes, in score per token before ``factor``.
        factor: what slope times position is multiplied by (Falcon: the score's scale).
        rounded: whether slope times position is kept in bfloat16 (Falcon), so that the bias is a
            staircase.

    Source: Press et al., 2108.12409; the two variations are those of transformers' models.
    """

    per_head: tuple[float, ...]
    factor: float = 1.0
    rounded: bool = False

    def bias(self, length: int) -> Float[np.ndarray, "head key"]:
        """Return what a key's position adds to its score, up to a constant of each row."""
        return _bias(self, length)


@lru_cache(maxsize=16)
def _bias(slopes: Slopes, length: int) -> np.ndarray:
    per_head = np.array(slopes.per_head)[:, None]
    positions = np.arange(length, dtype=np.float64)
    if not slopes.rounded:
        return np.asarray(slopes.factor * per_head * positions)
    rows = _in_bfloat16(_in_bfloat16(per_head) * _in_bfloat16(positions))
    return np.asarray(slopes.factor * rows.astype(np.float64))


def _in_bfloat16(numbers: np.ndarray) -> np.ndarray:
    """Round to the nearest number of 8 significant bits, ties to even."""
    bits = numbers.astype(np.float32).view(np.uint32)
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.asarray(kept.astype(np.uint32).view(np.float32))


@dataclass(frozen=True)
class ScoreRule:
    """How one layer makes scores of products, and which keys a query sees.

    ``s(n,i) = cap tanh(scale q_n . k_i / cap) - slope_h (n - i)``, the cap and the slopes where
    there are any.

    Attributes:
        scale: factor of ``q . k``.
        window: how many keys a query sees, itself included; None where it sees all.
        chunk: length of the chunks beyond whose start no query sees; None where there are none.
        cap: the soft cap of scores, or None.
        slopes: of ALiBi, or None.
    """

    scale: float
    window: int | None = None
    chunk: int | None = None
    cap: float | None = None
    slopes: Slopes | None = None

    @property
    def plain(self) -> bool:
        """Whether a score is the scaled product, neither capped nor biased."""
        return self.cap is None and self.slopes is None

    def of_heads(self, heads: slice) -> ScoreRule:
        """Return the rule of some heads alone."""
        if self.slopes is None:
            return self
        return replace(self, slopes=replace(self.slopes, per_head=self.slopes.per_head[heads]))

    def first_visible(self, n: int, skip: int = 0) -> int:
        """Return the first key that the query at ``n`` sees."""
        return first_visible(n, skip, self.window, self.chunk)

    def is_hidden(self, query: Any, key: Any) -> Any:
        """Return whether queries may not see keys, as :func:`is_hidden`."""
        return is_hidden(query, key, self.window, self.chunk)

    def capped(self, scores: Any) -> Any:
        """Return scaled products, NumPy or torch, after the soft cap."""
        if self.cap is None:
            return scores
        small = scores / self.cap
        return self.cap * (np.tanh(small) if isinstance(small, np.ndarray) else small.tanh())

    def scores(self, products: Any, queries: Any, keys: Any) -> Any:
        """Return the scores of products ``q . k [..., head, query, key]``, not scaled yet.

        ``queries`` and ``keys`` are the positions of the two last axes, slices or sequences.
        NumPy or torch; nothing is hidden.
        """
        scores = self.capped(self.scale * products)
        return scores if self.slopes is None else scores + self.bias(queries, keys, scores)

    def bias(self, queries: Any, keys: Any, like: Any) -> Any:
        """Return ``-slope_h (n - i) [head, query, key]`` as the kind of array that ``like`` is."""
        assert self.slopes is not None
        queries, keys = _positions(queries), _positions(keys)
        last = max(queries.max(initial=0), keys.max(initial=0))
        rows = self.slopes.bias(int(last) + 1)
        found = rows[:, None, keys] - rows[:, queries, None]
        if isinstance(like, np.ndarray):
            return found
        return like.new_tensor(found)


def _positions(chosen: Any) -> np.ndarray:
    if isinstance(chosen, slice):
        return np.arange(chosen.start or 0, chosen.stop)
    return np.asarray(chosen, dtype=np.int64)


def repeat_kv(x: Any, heads: int, axis: int = 0) -> Any:
    """Return an array or a tensor over key heads as one over ``heads`` query heads.

    ``head // kv`` neighbouring query heads share each key head of ``axis``.
    """
    repeat = getattr(x, "repeat_interleave", None) or x.repeat  # that of a tensor means another
    return repeat(heads // x.shape[axis], axis)
