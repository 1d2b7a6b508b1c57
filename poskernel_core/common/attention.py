"""Attention rules shared by NumPy and torch code: visible keys, grouped heads, score rules.

:class:`ScoreRule` describes how a layer turns query-key products into scores, and which keys are
visible: scale, window, chunk, cap, slopes. It applies to full scores and to scores of mean keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float


def is_hidden(query: Any, key: Any, window: int | None, chunk: int | None = None) -> Any:
    """Return whether keys are hidden: after the query, before its window, or in another chunk.

    ``query`` and ``key`` are positions, as NumPy arrays or tensors; they are broadcast.
    """
    hidden = key > query
    hidden = hidden if window is None else hidden | (key <= query - window)
    return hidden if chunk is None else hidden | (key // chunk != query // chunk)


def only_visible(
    values: Float[np.ndarray, "*batch query key"],
    window: int | None = None,
    chunk: int | None = None,
) -> Float[np.ndarray, "*batch query key"]:
    """Return a square array of values (as many queries as keys) with NaN at hidden keys."""
    positions = np.arange(values.shape[-1])
    return np.where(is_hidden(positions[:, None], positions, window, chunk), np.nan, values)


@dataclass(frozen=True)
class Slopes:
    """ALiBi: with every token between query and key the score falls by the head's slope.

    Attributes:
        per_head: the slopes, in score per token before ``factor``.
        factor: multiplies the product of slope and position; in Falcon, it is the score's scale.
        rounded: whether the product of slope and position is rounded to bfloat16 (as in Falcon), so
            that the bias is a staircase.

    Source: Press et al., 2108.12409; ``factor`` and ``rounded`` are as in transformers' models.
    """

    per_head: tuple[float, ...]
    factor: float = 1.0
    rounded: bool = False

    def bias(self, length: int) -> Float[np.ndarray, "head key"]:
        """Return what a key's position adds to the key's score, up to a constant per query."""
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
    """Round to bfloat16: 8 significant bits, ties to even."""
    bits = numbers.astype(np.float32).view(np.uint32)
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.asarray(kept.astype(np.uint32).view(np.float32))


@dataclass(frozen=True)
class ScoreRule:
    """How one layer computes scores from products, and which keys a query sees.

    ``s(n,i) = cap tanh(scale q_n . k_i / cap) - slope_h (n - i)``, with cap and slopes only if the
    layer has them.

    Attributes:
        scale: factor of ``q . k``.
        window: number of keys that a query sees, itself included; None for all.
        chunk: length of chunks; a query sees only keys of its chunk. None for no chunks.
        cap: the soft cap of scores, or None.
        slopes: the ALiBi slopes, or None.
    """

    scale: float
    window: int | None = None
    chunk: int | None = None
    cap: float | None = None
    slopes: Slopes | None = None

    @property
    def plain(self) -> bool:
        """Whether a score is just the scaled product, neither capped nor biased."""
        return self.cap is None and self.slopes is None

    def of_heads(self, heads: slice) -> ScoreRule:
        """Return the rule restricted to some heads."""
        if self.slopes is None:
            return self
        return replace(self, slopes=replace(self.slopes, per_head=self.slopes.per_head[heads]))

    def first_visible(self, n: int, skip: int = 0) -> int:
        """Return the first visible key of the query at ``n``."""
        low = skip if self.window is None else max(skip, n - self.window + 1)
        return low if self.chunk is None else max(low, n // self.chunk * self.chunk)

    def is_hidden(self, query: Any, key: Any) -> Any:
        """Return whether keys are hidden from queries, as :func:`is_hidden`."""
        return is_hidden(query, key, self.window, self.chunk)

    def capped(self, scores: Any) -> Any:
        """Apply the soft cap to scaled products (NumPy or torch)."""
        if self.cap is None:
            return scores
        small = scores / self.cap
        return self.cap * (np.tanh(small) if isinstance(small, np.ndarray) else small.tanh())

    def scores(self, products: Any, queries: Any, keys: Any) -> Any:
        """Return the scores of unscaled products ``q . k [..., head, query, key]``.

        ``queries`` and ``keys`` are the positions of the last two axes, as slices or sequences.
        Works on NumPy arrays and on torch tensors; it does not apply the mask.
        """
        scores = self.capped(self.scale * products)
        return scores if self.slopes is None else scores + self.bias(queries, keys, scores)

    def bias(self, queries: Any, keys: Any, like: Any) -> Any:
        """Return ``-slope_h (n - i) [head, query, key]`` as an array of the kind of ``like``."""
        assert self.slopes is not None
        queries, keys = _positions(queries), _positions(keys)
        last = max(queries.max(initial=0), keys.max(initial=0))
        rows = self.slopes.bias(int(last) + 1)
        biases = rows[:, None, keys] - rows[:, queries, None]
        if isinstance(like, np.ndarray):
            return biases
        return like.new_tensor(biases)


def _positions(chosen: Any) -> np.ndarray:
    if isinstance(chosen, slice):
        return np.arange(chosen.start or 0, chosen.stop)
    return np.asarray(chosen, dtype=np.int64)


def repeat_kv(x: Any, heads: int, axis: int = 0) -> Any:
    """Expand an array or tensor over key heads to ``heads`` query heads.

    ``head // kv`` neighbouring query heads share each key head of ``axis``.
    """
    repeat = getattr(x, "repeat_interleave", None) or x.repeat  # torch's, or NumPy's
    return repeat(heads // x.shape[axis], axis)
