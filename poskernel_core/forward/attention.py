"""Exact causal attention in blocks of query rows, with a callback that sees the pattern.

A fused kernel never forms the pattern, while the whole pattern is an array ``[text, head, T, T]``
in memory. Here the pattern is computed one block of rows at a time, passed to a callback, used, and
dropped. ``bench/`` measures how much time this costs. Blocks of keys that are hidden from all rows
(future keys, or keys before a sliding window) are never multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from poskernel_core.common.attention import ScoreRule, Slopes, is_hidden, repeat_kv

BLOCK = 64
"""Query rows per block of the pattern."""
BAND_ROWS = 32
"""Query rows per block of :func:`band_sums`; larger blocks compute more scores outside the band."""


@dataclass(frozen=True)
class AttentionCall:
    """The inputs of one layer's attention: biases added, rotary rotation applied.

    Attributes:
        layer: number of the layer.
        q: queries, ``[text, head, pos, d]``.
        k, v: keys and values, ``[text, kv, pos, d]``; ``head // kv`` query heads share each key
            head.
        scale: factor of ``q . k`` in the score.
        window: width of the sliding window in tokens, or None.
        chunk: chunk length if a query sees only the keys of its chunk, or None.
        cap: soft cap of the scores, or None.
        slopes: ALiBi slopes, or None.
        sinks: an extra logit per head ``[head]``, which receives attention but has no value; or
            None.
    """

    layer: int
    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    window: int | None = None
    chunk: int | None = None
    cap: float | None = None
    slopes: Slopes | None = None
    sinks: Tensor | None = None

    def to(self, device: torch.device) -> AttentionCall:
        """Return the call on a device."""
        sinks = None if self.sinks is None else self.sinks.to(device)
        q, k, v = (tensor.to(device) for tensor in (self.q, self.k, self.v))
        return replace(self, q=q, k=k, v=v, sinks=sinks)

    @property
    def rule(self) -> ScoreRule:
        """How scores are computed from products, and which keys a query sees."""
        return ScoreRule(self.scale, self.window, self.chunk, self.cap, self.slopes)


@dataclass(frozen=True)
class PatternBlock:
    """Some rows of a pattern, from ``first_row``; their keys go from ``first_key`` to the last row.

    ``pattern`` contains the attention probabilities ``[text, head, row, key]``, zero for hidden
    keys. Rows sum to 1, minus the share of a learned sink.
    """

    layer: int
    first_row: int
    first_key: int
    pattern: Float[Tensor, "text head row key"]


def attend(
    call: AttentionCall, see: Callable[[PatternBlock], None] | None = None
) -> Float[Tensor, "text head pos d"]:
    """Return the attention output ``A v``; pass each block of the pattern to ``see``.

    Without ``see``, torch's fused kernel is used, which does not form the pattern. It is not used
    for calls with a soft cap or sinks. Nor is it used if scores might overflow, because it would
    then return zeros instead of NaN.
    """
    if see is None and call.cap is None and call.sinks is None:
        ends = (t.detach().aminmax() for t in (call.q, call.k))
        q, k = (max(abs(float(end)) for end in both) for both in ends)
        if q * k * call.q.shape[-1] * abs(call.scale) < torch.finfo(torch.float32).max:
            return _fused(call)
    text, heads, length, _ = call.q.shape
    groups = heads // call.k.shape[1]
    values = call.v.contiguous()
    out = values.new_empty(text, length, heads, values.shape[-1]).transpose(1, 2)
    for block in pattern_blocks(call, reuse=True):
        rows, keys = block.pattern.shape[-2:]
        seen = values[:, :, block.first_key : block.first_key + keys]
        mixed = _grouped(block.pattern.to(values.dtype), groups) @ seen
        out[:, :, block.first_row : block.first_row + rows] = _ungrouped(mixed, groups)
        if see is not None:
            see(block)
    return out


def pattern_blocks(call: AttentionCall, *, reuse: bool = False) -> Iterator[PatternBlock]:
    """Yield the exact attention pattern of a call in blocks of query rows.

    With ``reuse``, all blocks share one buffer (for float32 on a CPU), so each block is valid only
    until the next one is computed. Allocating every block would take as long as its softmax.
    """
    (text, heads, length, _), rule = call.q.shape, call.rule
    groups, all_keys = heads // call.k.shape[1], call.k.contiguous()
    again = reuse and call.q.dtype == torch.float32 and call.q.device.type == "cpu"
    room = call.q.new_empty(text * heads * min(BLOCK, length) * length if again else 0)
    future = _limits(range(min(BLOCK, length)), range(min(BLOCK, length)), rule, call.q.device)
    for first in range(0, length, BLOCK):
        stop = min(first + BLOCK, length)
        start = rule.first_visible(first)
        queries = _grouped(call.q[:, :, first:stop], groups)
        keys = all_keys[:, :, start:stop]
        scores = _ungrouped(_products(queries, keys, call.scale, room), groups).float()
        scores = rule.capped(scores)
        if rule.slopes is not None:
            scores += rule.bias(slice(first, stop), slice(start, stop), scores)
        if rule.window is None and rule.chunk is None:
            scores[..., first:].clamp_max_(future[: stop - first, : stop - first])
        else:
            scores.clamp_max_(_limits(range(first, stop), range(start, stop), rule, scores.device))
        if call.sinks is None and scores.device.type == "cpu":
            pattern = torch.softmax(scores, dim=-1, out=scores)
        else:
            pattern = softmax_with_sinks(scores, call.sinks)
        yield PatternBlock(call.layer, first, start, pattern)


def uniform_blocks(layer: int, like: Tensor, rows: int | None = None) -> Iterator[PatternBlock]:
    """Yield the pattern of heads that attend equally to all visible keys.

    ``like [text, head, pos, d]`` gives the shape and the device; ``rows`` is the number of rows
    per block.
    """
    text, heads, length, _ = like.shape
    height = rows or BLOCK
    for first in range(0, length, height):
        stop = min(first + height, length)
        count = torch.arange(first + 1, stop + 1, device=like.device)[:, None]
        keys = torch.arange(1, stop + 1, device=like.device)
        block = (keys <= count) / count
        yield PatternBlock(layer, first, 0, block.expand(text, heads, -1, -1))


def softmax_with_sinks(
    scores: Float[Tensor, "text head query key"], sinks: Float[Tensor, " head"] | None
) -> Float[Tensor, "text head query key"]:
    """Return the softmax of scores, with the head's sink logit (if any) added to every row.

    The sink's share is not returned, so rows then sum to less than 1.
    """
    if sinks is None:
        return torch.softmax(scores, dim=-1)
    sink = sinks.float()[:, None, None]
    total = torch.logaddexp(scores.logsumexp(dim=-1, keepdim=True), sink)
    return (scores - total).exp()


def _products(queries: Tensor, keys: Tensor, scale: float, room: Tensor) -> Tensor:
    """Return ``scale q . k [..., query, key]``, written to ``room`` unless it is empty."""
    shape = (*queries.shape[:-1], keys.shape[-2])
    out = room[: math.prod(shape)].view(-1, *shape[-2:]) if len(room) else None
    nothing = queries.new_empty(1, 1, 1)
    of_heads, seen = queries.flatten(0, 1), keys.flatten(0, 1).transpose(-1, -2)
    return torch.baddbmm(nothing, of_heads, seen, beta=0, alpha=scale, out=out).view(shape)


def _limits(
    queries: range, keys: range, rule: ScoreRule, device: torch.device
) -> Float[Tensor, "query key"]:
    """Return an upper limit of each score: minus infinity for hidden keys, infinity for visible.

    Clamping scores to a limit is four times as fast as ``masked_fill``.
    """
    rows, columns = (torch.arange(r.start, r.stop, device=device) for r in (queries, keys))
    hidden = rule.is_hidden(rows[:, None], columns[None, :])
    return torch.where(hidden, -torch.inf, torch.inf)


def diagonal_sums(
    block: PatternBlock, length: int, *, without_key_0: bool = False
) -> Float[Tensor, "text head offset"]:
    """Return the sums of a block along its diagonals, by offset ``n - i`` in ``0 .. length-1``.

    ``without_key_0`` leaves out the first key's column, for windows with a start token.

    The block is viewed with a row stride one longer than the rows, so that diagonals become
    columns. This takes one pass over the block, without index arithmetic per element. Diagonals
    that begin below the first row are read from the second row on. Above their beginning, the view
    reads the end of the previous row, which is zero because those keys are in the future.
    """
    pattern = block.pattern.contiguous()
    text, head, rows, keys = pattern.shape
    near = keys - rows  # offset of the first row's query from the first key
    strides, begin = (*pattern.stride()[:2], keys + 1, 1), pattern.storage_offset()
    diagonals = pattern.as_strided((text, head, rows, near + 1), strides, begin)
    parts = [diagonals.sum(dim=-2).flip(-1)]
    if rows > 1:
        later = begin + keys + 2 - rows
        begun = pattern.as_strided((text, head, rows - 1, rows - 1), strides, later)
        parts.append(begun.sum(dim=-2).flip(-1))
    parts.append(pattern.new_zeros(text, head, length - keys))
    sums = torch.cat(parts, dim=-1)
    if without_key_0 and block.first_key == 0:
        sums[..., block.first_row : block.first_row + rows] -= block.pattern[..., 0]
    return sums


def band_sums(
    call: AttentionCall, reach: int, first_position: int = 0
) -> Float[Tensor, "text head band"]:
    """Return the sums of the raw scores along the diagonals with ``|n - i| <= reach``.

    Only queries and keys from ``first_position`` on count. Raw scores are not masked, so keys after
    the query are included. Index ``b`` of the last axis is the offset ``n - i = b - reach``. Only
    the scores near the diagonal are computed.

    Row ``r`` and column ``c`` of a block are at offset ``r - c + reach`` in every block. So blocks
    are added first, and summed along their diagonals at the end.
    """
    queries, keys = call.q[:, :, first_position:], call.k[:, :, first_position:]
    text, heads, length, d = queries.shape
    groups, width = heads // keys.shape[1], BAND_ROWS + 2 * reach
    padded = keys.new_zeros(text, keys.shape[1], length + 2 * reach, d)
    padded[:, :, reach : reach + length] = keys
    padded = padded.flatten(0, 1)
    plain = call.cap is None and queries.dtype == torch.float32
    total = torch.zeros(len(padded), groups * BAND_ROWS, width, device=queries.device)
    for first in range(0, length, BAND_ROWS):
        rows = min(BAND_ROWS, length - first)
        block = _grouped(queries[:, :, first : first + rows], groups).flatten(0, 1)
        seen = padded[:, first : first + rows + 2 * reach].transpose(1, 2)
        if plain and rows == BAND_ROWS:
            total.baddbmm_(block, seen, alpha=call.scale)
        else:
            scores = call.rule.capped((block @ seen).float().mul_(call.scale))
            of_heads = total.view(-1, groups, BAND_ROWS, width)[:, :, :rows, : rows + 2 * reach]
            of_heads += scores.unflatten(1, (groups, rows))
    offsets = (text, heads, BAND_ROWS, 2 * reach + 1)
    strides = (heads * BAND_ROWS * width, BAND_ROWS * width, width + 1, 1)
    sums = total.as_strided(offsets, strides).sum(dim=-2).flip(-1)
    if call.slopes is None:
        return sums
    return sums + _band_of_bias(call, reach, first_position).to(sums)


def _band_of_bias(call: AttentionCall, reach: int, first: int) -> Tensor:
    """Return the sums of the ALiBi bias along the diagonals of the band, ``[head, band]``."""
    assert call.slopes is not None
    rows = torch.from_numpy(call.slopes.bias(call.q.shape[2])[:, first:])
    heads, length = rows.shape
    sums = rows.new_zeros(heads, 2 * reach + 1)
    for band, offset in enumerate(range(-reach, reach + 1)):
        low, high = max(0, offset), min(length, length + offset)
        if low < high:
            sums[:, band] = (rows[:, low - offset : high - offset] - rows[:, low:high]).sum(dim=-1)
    return sums


def hidden_keys(
    length: int, window: int | None, device: torch.device, chunk: int | None = None
) -> Bool[Tensor, "query key"]:
    """Return the mask of the keys that are hidden from each query."""
    positions = torch.arange(length, device=device)
    hidden: Tensor = is_hidden(positions[:, None], positions[None, :], window, chunk)
    return hidden


def masked_scores(call: AttentionCall) -> Float[Tensor, "text head query key"]:
    """Return all scores of a call, in float32; minus infinity for hidden keys."""
    keys = repeat_kv(call.k, call.q.shape[1], 1)
    scores = call.rule.capped(((call.q * call.scale) @ keys.transpose(-1, -2)).float())
    length = call.q.shape[2]
    if call.slopes is not None:
        scores = scores + call.rule.bias(slice(0, length), slice(0, length), scores)
    hidden = hidden_keys(length, call.window, scores.device, call.chunk)
    return scores.masked_fill(hidden, -torch.inf)


def _grouped(x: Tensor, groups: int) -> Tensor:
    text, heads, rows, last = x.shape
    return x.reshape(text, heads // groups, groups * rows, last)


def _ungrouped(x: Tensor, groups: int) -> Tensor:
    text, kv_heads, rows, last = x.shape
    return x.reshape(text, kv_heads * groups, rows // groups, last)


def _fused(call: AttentionCall) -> Tensor:
    length, rule = call.q.shape[2], call.rule
    mask = None
    if rule.slopes is not None:
        bias = rule.bias(slice(0, length), slice(0, length), call.q)
        hidden = hidden_keys(length, rule.window, call.q.device, rule.chunk)
        mask = bias.masked_fill(hidden, -torch.inf)[None]
    elif min(rule.window or length, rule.chunk or length) < length:
        mask = ~hidden_keys(length, rule.window, call.q.device, rule.chunk)
    return torch.nn.functional.scaled_dot_product_attention(
        call.q,
        call.k,
        call.v,
        attn_mask=mask,
        is_causal=mask is None,
        scale=call.scale,
        enable_gqa=call.q.shape[1] != call.k.shape[1],
    )
