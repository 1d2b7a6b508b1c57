"""Run one text: patterns of all heads, and scores split by the mean keys of a run."""

import math

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.own_text.spec import (
    MAX_PATTERN_CELLS,
    HeadOnText,
    HeadOnTextParams,
    OwnText,
    OwnTextParams,
    kept_queries,
)
from poskernel_core.common.attention import repeat_kv
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.result import Result
from poskernel_core.common.views import StatisticsView
from poskernel_core.forward.attention import AttentionCall, PatternBlock
from poskernel_core.forward.observers import Batch, Observer

LARGEST_SIDE = 128
ROWS = 64
SHARES = ("position_share", "content_share", "covariance_share")


def all_heads(subject: ExperimentContext, params: OwnTextParams) -> Result:
    """Run the text; see :class:`~poskernel_core.analyses.own_text.spec.OwnText`."""
    main, geometry = subject.main, subject.model.geometry
    length = subject.windows.shape[1]
    most = math.isqrt(MAX_PATTERN_CELLS // (geometry.n_layers * geometry.n_heads))
    block = math.ceil(length / max(1, min(LARGEST_SIDE, most)))
    seen = _AllHeads(main, geometry.n_layers, geometry.n_heads, length, block, params.skip)
    _run(subject, seen, -1)
    starts = np.arange(0, length, block)
    return OwnText.result(
        params,
        {"pattern": seen.pattern_of_blocks(), **_named(row_shares(*seen.variances))},
        coordinates={"query": starts, "key": starts},
        provenance=_mean_keys_of(main, length),
    )


def one_head(subject: ExperimentContext, params: HeadOnTextParams) -> Result:
    """Run the text up to a head: :class:`~poskernel_core.analyses.own_text.spec.HeadOnText`."""
    main, geometry = subject.main, subject.model.geometry
    layer, head = parse_cell(params.head, geometry.n_layers, geometry.n_heads)
    length = subject.windows.shape[1]
    seen = _OneHead(main, layer, head, kept_queries(length, params.around), params.skip)
    _run(subject, seen, layer)
    return HeadOnText.result(
        params,
        seen.values(),
        coordinates={"query": np.array(seen.rows)},
        provenance=_mean_keys_of(main, length),
    )


def row_shares(position: Tensor, content: Tensor, both: Tensor) -> tuple[np.ndarray, ...]:
    """Return variances of position and content, and twice their covariance, over their sum.

    NaN where all scores are equal.
    """
    total = position + content + both
    flat = total <= 0
    return tuple(
        (variance / total).masked_fill(flat, torch.nan).numpy()
        for variance in (position, content, both)
    )


def _named(shares: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
    return dict(zip(SHARES, shares, strict=True))


def _mean_keys_of(main: StatisticsView, length: int) -> dict[str, int]:
    """Return the provenance: windows of the mean keys, and length of the text."""
    header = main.header
    return {"windows": header.windows, "context": header.context, "text_tokens": length}


def _run(subject: ExperimentContext, seen: Observer, until: int) -> None:
    tokens = torch.from_numpy(np.ascontiguousarray(subject.windows[:1]))
    subject.model.run(tokens, observers=[seen], samples=range(1), until=until)


def _split(
    call: AttentionCall, main: StatisticsView, rows: range, heads: slice
) -> tuple[Tensor, Tensor]:
    """Return some rows' scores, and the scores' part by position, ``[head, row, key]``, float64.

    Keys up to the last row are included; nothing is masked.
    """
    count, width = call.q.shape[1], call.q.shape[-1]
    mean = torch.from_numpy(main.layer(call.layer)["mean_keys"][:, : rows.stop, :width].copy())
    queries = call.q[0, heads, rows.start : rows.stop].cpu().double()
    rule, keys = call.rule.of_heads(heads), slice(0, rows.stop)
    score, position = (
        rule.scores(
            queries @ repeat_kv(key_rows, count)[heads].double().transpose(-1, -2),
            slice(rows.start, rows.stop),
            keys,
        )
        for key_rows in (call.k[0, :, keys].cpu(), mean)
    )
    return score, position


def _hidden(call: AttentionCall, rows: range, skip: int) -> Tensor:
    """Return which keys are left out of each row, ``[row, key]``."""
    queries, keys = (
        torch.arange(rows.start, rows.stop, device="cpu")[:, None],
        torch.arange(rows.stop, device="cpu"),
    )
    hidden: Tensor = call.rule.is_hidden(queries, keys) | (keys < skip)
    return hidden


def _variances(score: Tensor, position: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return each row's variances of position and content, and twice their covariance."""
    count = (~hidden).sum(dim=-1).clamp(min=1)

    def mean(x: Tensor) -> Tensor:
        return x.masked_fill(hidden, 0).sum(dim=-1) / count

    a, c = (part - mean(part)[..., None] for part in (position, score - position))
    return mean(a * a), mean(c * c), 2 * mean(a * c)


class _AllHeads(Observer):
    """Keeps every head's pattern in blocks of tokens, and the variances of its scores' parts.

    ``variances`` are those of position and of content, and twice their covariance, summed over the
    rows, ``[layer, head]`` each.
    """

    wants_patterns = True

    def __init__(
        self, main: StatisticsView, layers: int, heads: int, length: int, block: int, skip: int
    ) -> None:
        side = math.ceil(length / block)
        self.variances = tuple(
            torch.zeros(layers, heads, dtype=torch.float64, device="cpu") for _ in range(3)
        )
        self._sums = torch.zeros(layers, heads, side, side, device="cpu")
        self._main, self._length, self._block, self._skip = main, length, block, skip

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        for first in range(0, self._length, ROWS):
            rows = range(first, min(first + ROWS, self._length))
            score, position = _split(call, self._main, rows, slice(0, call.q.shape[1]))
            parts = _variances(score, position, _hidden(call, rows, self._skip))
            for total, part in zip(self.variances, parts, strict=True):
                total[call.layer] += part.sum(dim=-1)

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        pattern = block.pattern[0].float().cpu()
        rows, keys = (
            torch.arange(first, first + size, device="cpu") // self._block
            for first, size in zip(
                (block.first_row, block.first_key), pattern.shape[-2:], strict=True
            )
        )
        sums = self._sums[block.layer]
        narrow = pattern.new_zeros(*pattern.shape[:-1], sums.shape[-1]).index_add_(2, keys, pattern)
        sums.index_add_(1, rows, narrow)

    def pattern_of_blocks(self) -> np.ndarray:
        """Return attention between blocks: summed over their keys, averaged over their queries."""
        starts = torch.arange(0, self._length, self._block, device="cpu")
        sizes = (self._length - starts).clamp(max=self._block)
        return (self._sums / sizes[:, None]).numpy()


class _OneHead(Observer):
    """Keeps one head's rows: scores, their parts, and the pattern, ``[query, key]``."""

    wants_patterns = True

    def __init__(self, main: StatisticsView, layer: int, head: int, rows: range, skip: int) -> None:
        self.rows = rows
        self._main, self._layer, self._head, self._skip = main, layer, head, skip
        self._found: dict[str, np.ndarray] = {}

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        if call.layer != self._layer:
            return
        length = call.q.shape[2]
        shape = (len(self.rows), length)
        kept = {
            name: np.full(shape, np.nan, np.float32)
            for name in ("score", "position", "content", "kernel")
        }
        kept["pattern"] = np.zeros(shape, np.float32)
        shares = np.full((3, len(self.rows)), np.nan)
        for first in range(self.rows.start, self.rows.stop, ROWS):
            rows = range(first, min(first + ROWS, self.rows.stop))
            here = slice(first - self.rows.start, rows.stop - self.rows.start)
            score, position = _split(call, self._main, rows, slice(self._head, self._head + 1))
            unseen, hidden = _hidden(call, rows, 0), _hidden(call, rows, self._skip)
            kernel = torch.softmax(position.masked_fill(hidden, -torch.inf), dim=-1)
            shares[:, here] = row_shares(*(x[0] for x in _variances(score, position, hidden)))
            for name, x, mask in (
                ("score", score, unseen),
                ("position", position, unseen),
                ("content", score - position, unseen),
                ("kernel", kernel, hidden),
            ):
                kept[name][here, : rows.stop] = x[0].masked_fill(mask, torch.nan).numpy()
        self._found = {**kept, **_named(tuple(shares))}

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        if block.layer != self._layer:
            return
        pattern = block.pattern[0, self._head].float().cpu().numpy()
        rows = range(block.first_row, block.first_row + len(pattern))
        both = range(max(rows.start, self.rows.start), min(rows.stop, self.rows.stop))
        if len(both):
            kept = self._found["pattern"][
                both.start - self.rows.start : both.stop - self.rows.start
            ]
            kept[:, block.first_key : block.first_key + pattern.shape[1]] = pattern[
                both.start - rows.start : both.stop - rows.start
            ]

    def values(self) -> dict[str, np.ndarray]:
        """Return all values, in the order declared."""
        arrays = dict(self._found)
        kernel, pattern = arrays["kernel"], arrays["pattern"].astype(np.float64)
        arrays["skipped"] = pattern[:, : self._skip].sum(axis=-1)
        seen = np.where(np.isnan(kernel), 0, pattern)
        with np.errstate(invalid="ignore", divide="ignore"):
            alike = seen / seen.sum(axis=-1, keepdims=True)
        gap = np.abs(np.nan_to_num(kernel) - alike).sum(axis=-1) / 2
        arrays["attention_distance"] = np.where(np.isfinite(kernel).any(axis=-1), gap, np.nan)
        return {value.name: arrays[value.name] for value in HeadOnText.values}
