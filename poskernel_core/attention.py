"""Exact causal attention in blocks of query rows, which shows its pattern as it goes.

A fused kernel never forms the pattern; forming it whole takes ``[text, head, T, T]`` of memory.
Here one block of rows is formed at a time, shown to a *tap*, used, and dropped: the exact
pattern of every text for a few per cent of the time of a fused pass (see ``bench/``).
Future keys are never multiplied, nor keys that a sliding window hides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["AttentionCall", "PatternBlock", "Tap", "attend", "diagonal_sums", "pattern_blocks"]

BLOCK = 128


@dataclass(frozen=True)
class AttentionCall:
    """What enters one layer's attention: biases in, rotary rotation applied.

    Attributes:
        layer: number of the layer.
        q: queries, ``[text, head, pos, d]``.
        k, v: keys and values, ``[text, kv, pos, d]``; ``head // kv`` query heads share each.
        scale: factor of ``q . k`` in the score.
        window: width of the sliding window in tokens, or None.
    """

    layer: int
    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    window: int | None


@dataclass(frozen=True)
class PatternBlock:
    """Rows ``first_row ..`` of a pattern, for the keys ``first_key ..`` that any of them sees.

    ``pattern`` is ``[text, head, row, key]`` and sums to 1 over the last axis.
    """

    layer: int
    first_row: int
    first_key: int
    pattern: Tensor


@runtime_checkable
class Tap(Protocol):
    """Whoever watches the attention of a forward pass."""

    def attention(self, call: AttentionCall) -> bool:
        """See the call; return whether its pattern blocks are wanted too."""

    def pattern(self, block: PatternBlock) -> None:
        """See one block of the pattern."""


def attend(call: AttentionCall, tap: Tap) -> Float[Tensor, "text head pos d"]:
    """Return the attention output ``A v``, showing call and pattern to the tap."""
    if not tap.attention(call):
        return _fused(call)
    out = torch.empty_like(call.q)
    groups = call.q.shape[1] // call.k.shape[1]
    for block in pattern_blocks(call):
        tap.pattern(block)
        rows, keys = block.pattern.shape[-2:]
        values = call.v[:, :, block.first_key : block.first_key + keys]
        mixed = _grouped(block.pattern.to(values.dtype), groups) @ values
        out[:, :, block.first_row : block.first_row + rows] = _ungrouped(mixed, groups)
    return out


def pattern_blocks(call: AttentionCall) -> Iterator[PatternBlock]:
    """Yield the exact attention pattern of a call, block by block of query rows."""
    length = call.q.shape[2]
    groups = call.q.shape[1] // call.k.shape[1]
    for first in range(0, length, BLOCK):
        stop = min(first + BLOCK, length)
        start = 0 if call.window is None else max(0, first - call.window + 1)
        queries = _grouped(call.q[:, :, first:stop] * call.scale, groups)
        scores = queries @ call.k[:, :, start:stop].transpose(-1, -2)
        scores = _ungrouped(scores, groups).float()
        rows = torch.arange(first, stop, device=scores.device)[:, None]
        keys = torch.arange(start, stop, device=scores.device)[None, :]
        hidden = keys > rows
        if call.window is not None:
            hidden |= keys <= rows - call.window
        visible_from = 0 if call.window is not None else first - start
        scores[..., visible_from:].masked_fill_(hidden[:, visible_from:], -torch.inf)
        yield PatternBlock(call.layer, first, start, torch.softmax(scores, dim=-1))


def diagonal_sums(
    block: PatternBlock, length: int, *, without_key_0: bool = False
) -> Float[Tensor, "text head offset"]:
    """Return the sums of a block along its diagonals, by offset ``n - i`` in ``0 .. length-1``.

    ``without_key_0`` leaves the first key's column out, as is done for a start token.

    The rows are laid one beside the other with a stride one longer than the row, so that a
    diagonal becomes a column: one pass over the block, no index arithmetic per element.
    """
    text, head, rows, keys = block.pattern.shape
    width = keys + 2 * rows
    padded = block.pattern.new_empty(text, head, rows, width)
    padded[..., : rows - 1] = 0
    padded[..., rows - 1 : rows - 1 + keys] = block.pattern
    padded[..., rows - 1 + keys :] = 0
    if without_key_0 and block.first_key == 0:
        padded[..., rows - 1] = 0
    offsets = block.first_row - block.first_key + rows
    stride = padded.stride()
    slanted = padded.as_strided(
        (text, head, rows, offsets), (stride[0], stride[1], width + 1, 1), padded.storage_offset()
    )
    sums = slanted.sum(dim=-2).flip(-1)
    return torch.nn.functional.pad(sums, (0, length - offsets))


def _grouped(x: Tensor, groups: int) -> Tensor:
    """Fold the query heads that share a key head into the row axis."""
    text, heads, rows, last = x.shape
    return x.reshape(text, heads // groups, groups * rows, last)


def _ungrouped(x: Tensor, groups: int) -> Tensor:
    text, kv_heads, rows, last = x.shape
    return x.reshape(text, kv_heads * groups, rows // groups, last)


def _fused(call: AttentionCall) -> Tensor:
    """Return the attention output without forming the pattern."""
    length = call.q.shape[2]
    mask = None
    if call.window is not None and call.window < length:
        rows = torch.arange(length, device=call.q.device)[:, None]
        keys = torch.arange(length, device=call.q.device)[None, :]
        mask = (keys <= rows) & (keys > rows - call.window)
    return torch.nn.functional.scaled_dot_product_attention(
        call.q,
        call.k,
        call.v,
        attn_mask=mask,
        is_causal=mask is None,
        scale=call.scale,
        enable_gqa=call.q.shape[1] != call.k.shape[1],
    )
