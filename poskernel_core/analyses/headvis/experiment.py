"""Find every head's example texts: one pass for the intervals, one to choose and keep texts."""

from bisect import bisect_right

import numpy as np
import torch
from torch import Tensor

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.headvis.spec import HeadExamples, HeadExamplesParams
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import Result
from poskernel_core.forward.attention import PatternBlock
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.statistics.moments import Groups, replicated

TOP = 8
"""How many keys are kept of every row: those with most attention."""

FIRST_TEXTS = 200
"""The intervals are computed from at most this many texts."""

BINS = 50
TOKENS_AT_A_TIME = 2048
MAX_BYTES = 2**30


class Largest(Observer):
    """The largest attention of every head in each text of a batch; optionally each row's top keys.

    ``largest [layer]`` holds ``[text, head]``; key 0 and query 0 do not count. ``top [layer]``
    holds attention and keys ``[text, head, pos, rank]``.
    """

    wants_patterns = True

    def __init__(self, context: int, keep_top: bool) -> None:
        self.largest: dict[int, Tensor] = {}
        self.top: dict[int, tuple[Tensor, Tensor]] = {}
        self._context, self._keep_top = context, keep_top

    def pattern(self, block: PatternBlock, batch: Batch) -> None:
        rows, first = block.pattern, block.first_row
        counted = rows[:, :, 1 if first == 0 else 0 :, 1 if block.first_key == 0 else 0 :]
        here = rows.new_zeros(rows.shape[:2])
        if counted.numel():
            here = counted.amax(dim=(2, 3))
        before = self.largest.get(block.layer)
        self.largest[block.layer] = here if first == 0 or before is None else before.maximum(here)
        if not self._keep_top:
            return
        top = rows.topk(min(TOP, rows.shape[-1]), dim=-1)
        shape = (*rows.shape[:2], self._context, TOP)
        if first == 0:
            self.top[block.layer] = rows.new_zeros(shape), top.indices.new_zeros(shape)
        values, keys = self.top[block.layer]
        stop, ranks = first + rows.shape[2], top.values.shape[-1]
        values[:, :, first:stop, :ranks] = top.values
        keys[:, :, first:stop, :ranks] = (top.indices + block.first_key) * (top.values > 0)


class Kept:
    """The examples of all heads: arrays of a fixed size, however many texts are read."""

    def __init__(
        self, heads: tuple[int, int], context: int, params: HeadExamplesParams, limits: np.ndarray
    ) -> None:
        shape = (*heads, params.per_interval * (params.intervals - 1) + params.in_last)
        rows = (*shape, context, TOP)
        keys = np.dtype("uint16" if context <= 2**16 else "int32")
        size = int(np.prod(rows)) * (keys.itemsize + 4)
        if size > MAX_BYTES:
            raise BadRequest(
                f"Examples of {heads[0]} x {heads[1]} heads would take {size / 1e9:.1f} GB: choose "
                "a shorter context, or fewer texts an interval."
            )
        self.limits, self.params = limits, params
        self.number = np.full(shape, -1)
        self.interval = np.zeros(shape, dtype=np.int64)
        self.largest = np.full(shape, np.nan)
        self.key = np.zeros(rows, keys)
        self.attention = np.zeros(rows, np.float32)
        self._seen = np.zeros((*heads, params.intervals), dtype=np.int64)
        self._random = {
            (layer, head): np.random.default_rng([layer, head])
            for layer in range(heads[0])
            for head in range(heads[1])
        }

    def add(self, layer: int, number: int, largest: np.ndarray, top: tuple[Tensor, Tensor]) -> None:
        """Offer a text to all heads of a layer: ``largest [head]``, ``top [head, pos, rank]``."""
        for head, value in enumerate(largest.tolist()):
            interval = bisect_right(self.limits[layer, head].tolist(), value)
            if (place := self._place(layer, head, interval, value)) is None:
                continue
            at = layer, head, place
            self.number[at], self.interval[at], self.largest[at] = number, interval + 1, value
            attention, keys = (tensor[head].cpu().numpy() for tensor in top)
            self.key[at], self.attention[at] = keys, attention

    def _place(self, layer: int, head: int, interval: int, value: float) -> int | None:
        """Return a text's slot or None: the last interval keeps the largest, others are sampled."""
        params, at = self.params, (layer, head, interval)
        seen = self._seen[at]
        self._seen[at] += 1
        first = interval * params.per_interval
        if interval == params.intervals - 1:
            if seen < params.in_last:
                return first + int(seen)
            least = first + int(np.argmin(self.largest[layer, head, first:]))
            return least if value > self.largest[layer, head, least] else None
        drawn = int(seen)
        if seen >= params.per_interval:
            drawn = int(self._random[layer, head].integers(seen + 1))
        return first + drawn if drawn < params.per_interval else None


def head_examples(subject: ExperimentContext, params: HeadExamplesParams) -> Result:
    """Run the texts; see :class:`~poskernel_core.analyses.headvis.spec.HeadExamples`."""
    geometry, windows = subject.model.geometry, subject.windows
    heads, context = (geometry.n_layers, geometry.n_heads), windows.shape[1]
    first = min(FIRST_TEXTS, len(windows))
    steps, size = first + len(windows), max(1, TOKENS_AT_A_TIME // context)
    begun: list[np.ndarray] = []
    for some, tokens in subject.batches(windows[:first], size, 0, steps):
        begun.append(_stacked(_largest(subject, tokens, some)))
    kept = Kept(heads, context, params, _limits(np.concatenate(begun), params.intervals))
    counts = np.zeros((*heads, BINS), dtype=np.int64)
    layers, columns = np.indices(heads)
    mean = Groups()
    for some, tokens in subject.batches(windows, size, first, steps):
        seen = _largest(subject, tokens, some, keep_top=True)
        largest = _stacked(seen)
        mean.add(torch.from_numpy(largest), some)
        for row, number in enumerate(some):
            bins = np.clip((largest[row] * BINS).astype(np.int64), 0, BINS - 1)
            counts[layers, columns, bins] += 1
            for layer, (attention, keys) in seen.top.items():
                kept.add(layer, number, largest[row, layer], (attention[row], keys[row]))

    numbers = np.unique(kept.number[kept.number >= 0])
    ids, token = np.unique(subject.windows[numbers], return_inverse=True)
    return HeadExamples.estimated(
        subject,
        params,
        replicated(lambda average: {"mean_max_activation": average}, mean),
        {
            "interval": kept.interval,
            "example_text": kept.number,
            "max_activation": kept.largest,
            "top_key": kept.key,
            "top_attention": np.round(kept.attention, 4),
            "activation_histogram": counts,
            "token": token.reshape(len(numbers), -1),
        },
        coordinates={"text": numbers},
        texts={"words": subject.decode(ids.tolist())},
    )


def _largest(
    subject: ExperimentContext, tokens: Tensor, some: range, keep_top: bool = False
) -> Largest:
    seen = Largest(tokens.shape[1], keep_top)
    subject.model.run(tokens, observers=[seen], samples=some, until=-1)
    return seen


def _stacked(seen: Largest) -> np.ndarray:
    """Return the largest attention of a batch, ``[text, layer, head]``."""
    layers = [seen.largest[layer] for layer in sorted(seen.largest)]
    return torch.stack(layers, dim=1).cpu().double().numpy()


def _limits(largest: np.ndarray, intervals: int) -> np.ndarray:
    """Return the quantiles ``[layer, head, interval - 1]`` of ``largest [text, layer, head]``."""
    ordered, count = np.sort(largest, axis=0), len(largest)
    places = [min(round(i * count / intervals), count - 1) for i in range(1, intervals)]
    return np.moveaxis(ordered[places], 0, -1)
