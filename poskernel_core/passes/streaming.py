"""The streaming forward pass: reads windows of tokens and accumulates sums, block by block.

A pass runs the model once over many windows and updates the statistics. It keeps no array of shape
``[windows, ...]``, so memory does not grow with the number of texts. Only the sums of one group of
texts are in memory at a time.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from poskernel_core.common.attention import ScoreRule
from poskernel_core.common.axes import Tokens
from poskernel_core.common.errors import ComputeFailed
from poskernel_core.common.shards import TOKENS_PER_STEP
from poskernel_core.common.specs import OF_PATTERNS, Gather
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.loading import LoadedModel
from poskernel_core.forward.memory import in_float32
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.precision import precision
from poskernel_core.statistics import STATISTICS, Sizes, Sums

EXACT = 2.0**53
"""Most grains of a sum; up to there, float64 holds every whole number."""

FINE = 8
"""Windows of each group in a round, once the first pictures have been drawn."""

TOKENS_PER_BATCH = {"cpu": TOKENS_PER_STEP, "mps": 8192, "cuda": 32768}


def default_batch(device: str, context: int) -> int:
    """Return the default batch size for windows of ``context`` tokens."""
    return max(1, TOKENS_PER_BATCH.get(device, TOKENS_PER_STEP) // context)


class OutOfMemory(Exception):
    """A batch did not fit into memory; the sums of the current block are invalid."""


def batches(windows: range, step: int, seen: int) -> Iterator[range]:
    """Yield batches of at most ``step`` windows of a group.

    Batch boundaries are the same wherever reading starts; the first batches are small
    (:func:`next_edge`). The windows of a batch are all below ``seen``, or all at or above ``seen``.
    """
    first, cut = windows.start // windows.step, seen // windows.step
    at, last = first, first + len(windows)
    while at < last:
        stop = min(last, next_edge(at, step))
        stop = cut if at < cut < stop else stop
        yield windows[at - first : stop - first]
        at = stop


def next_edge(at: int, step: int) -> int:
    """Return the first batch boundary of a group after window ``at``, counted within the group.

    The first batches have 1, 1, 2, 4, ... windows, so that numbers can be shown early (with large
    batches 1, 3, 12, ...); then all have ``step``.
    """
    if at >= step:
        return (at // step + 1) * step
    doublings = at.bit_length()
    return min(step, 1 << (doublings if step <= 2 * FINE else doublings + doublings % 2))


def round_ends(per_group: int, step: int) -> list[int]:
    """Return how many windows of every group are read after each round, up to ``per_group``.

    A round reads some windows of one group after another: 1, 2, 4, 8 of each group in all, then
    8 more at a time, or a batch if that is more.
    """
    ends: list[int] = []
    wanted = 1
    while wanted < per_group:
        end = 0
        while end < wanted:
            end = next_edge(end, step)
        ends.append(end)
        wanted = 2 * end if end < FINE else end + FINE
    return [*(end for end in ends if end < per_group), per_group]


def add(left: Sums, right: Sums) -> Sums:
    """Add the sums of two disjoint sets of windows of a group."""
    return {name: np.asarray(left[name] + right[name]) for name in left}


def finish(statistic: Gather, blocks: Sequence[Sums], sizes: Sizes) -> dict[str, np.ndarray]:
    """Compute the means of a statistic, ``[layer, ...]`` each, from the sums of every group."""
    seen = sizes.seen if statistic in OF_PATTERNS else sizes.windows
    return STATISTICS[statistic].finish(blocks, sizes, seen)


class Pass:
    """Runs a model over the windows, one group after another; holds the sums of one group."""

    def __init__(
        self, model: LoadedModel, sizes: Sizes, gather: Sequence[Gather], dtype: str = "float32"
    ) -> None:
        self.model = model
        self.sizes = sizes
        self.dtype = dtype
        self._names = tuple(gather)
        self._statistics = [STATISTICS[g](sizes, model.device) for g in gather]
        self._of_all = [
            statistic for statistic in self._statistics if statistic.name not in OF_PATTERNS
        ]
        self._calls = _Calls()

    def run(self, windows: Tokens, rows: range, batch: int | None = None) -> None:
        """Read some windows of one group and add them to the sums.

        Raises:
            OutOfMemory: a batch did not fit; restore older sums and retry with a smaller batch.
        """
        step = batch or default_batch(self.model.device.type, self.sizes.context)
        with precision(self.dtype):
            for part in batches(rows, step, self.sizes.seen):
                tokens = np.ascontiguousarray(windows[part.start : part.stop : part.step])
                self._read(torch.from_numpy(tokens.astype(np.int64, copy=False)), part)

    def _read(self, tokens: Tensor, samples: range) -> None:
        statistics = self._statistics if samples.start < self.sizes.seen else self._of_all
        observers = [self._calls, *statistics]
        try:
            self.model.run(tokens, observers=observers, samples=samples, until=-1)
        except torch.OutOfMemoryError as error:
            raise OutOfMemory from error
        except RuntimeError as error:
            if "allocate memory" in str(error):
                raise OutOfMemory from error
            raise

    @property
    def facts(self) -> dict[str, Any]:
        """The score rules of all layers as fields of a header; available after the first batch.

        A feature that no layer has is ``()``.
        """
        rules = [self._calls.seen[layer] for layer in range(self.sizes.geometry.n_layers)]
        few = {
            "chunks": tuple(rule.chunk for rule in rules),
            "caps": tuple(rule.cap for rule in rules),
            "slopes": tuple(rule.slopes for rule in rules),
        }
        return {
            "scales": tuple(rule.scale for rule in rules),
            "sliding_windows": tuple(rule.window for rule in rules),
        } | {name: values if any(values) else () for name, values in few.items()}

    def sums(self) -> Sums:
        """Return a copy of the sums so far, as NumPy arrays."""
        return {name: total.cpu().numpy().copy() for name, total in self._totals()}

    def block(self) -> dict[Gather, Sums]:
        """Return the sums so far by statistic; on a CPU they are not copied."""
        return {
            name: {key: total.cpu().numpy() for key, total in statistic.sums.items()}
            for name, statistic in zip(self._names, self._statistics, strict=True)
        }

    def totals(self, statistic: Gather) -> dict[str, Tensor]:
        """Return the sums of one statistic, not copied."""
        return self._statistics[self._names.index(statistic)].sums

    def clear(self) -> None:
        """Set all sums to zero, for the next group."""
        for _, total in self._totals():
            total.zero_()

    def numbers(self) -> dict[Gather, int]:
        """Return the number of elements of each statistic's sums."""
        return {
            statistic.name: sum(total.numel() for total in statistic.sums.values())
            for statistic in self._statistics
        }

    def check_finite(self) -> None:
        """Check that no sum has become infinite or NaN, or too large to be exact."""
        for statistic in self._statistics:
            for name, total in statistic.sums.items():
                exact = EXACT * statistic.grain if total.dtype == torch.float64 else math.inf
                for layer, sums in enumerate(total):
                    largest = sums.abs().amax().item() if sums.numel() else 0.0
                    if not math.isfinite(largest):
                        raise ComputeFailed(
                            f"The model's numbers in layer {layer} are not finite ({name}): its "
                            f"weights are too large for {self.dtype}, or damaged."
                        )
                    if largest > exact:
                        raise ComputeFailed(
                            f"Expected sums up to {exact:.2g} in layer {layer}, got {largest:.2g} "
                            f"({name}): larger ones are not exact; ask for fewer windows."
                        )

    def restore(self, sums: Sums) -> None:
        """Set the sums to those of a checkpoint."""
        for name, total in self._totals():
            total.copy_(torch.from_numpy(sums[name]))

    def _totals(self) -> Iterator[tuple[str, Tensor]]:
        for statistic in self._statistics:
            yield from statistic.sums.items()


class _Calls(Observer):
    """Records the score rule of every layer; a window or chunk that hides no key becomes None."""

    def __init__(self) -> None:
        self.seen: dict[int, ScoreRule] = {}

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        length, rule = call.q.shape[2], call.rule
        self.seen[call.layer] = replace(
            rule,
            window=rule.window if rule.window is not None and rule.window < length else None,
            chunk=rule.chunk if rule.chunk is not None and rule.chunk < length else None,
        )


def dtype_error(model: LoadedModel, sizes: Sizes, windows: Tokens, dtype: str) -> float:
    """Return the relative error of mean keys in ``dtype``, compared with float32, on two windows.

    The error is ``|m - m32| / |m32|`` (Euclidean norms over all layers, heads and positions).
    Afterwards the model is in ``dtype``. If it was loaded in 16 bits, its float32 values are
    computed part by part, so that it is never in memory twice.
    """
    few = windows[:2]
    full_precision = next(model.module.parameters()).dtype == torch.float32
    means = []
    for name in ("float32", dtype):
        if full_precision:
            model.cast(name)
        one = Pass(model, sizes, ("keys",), name)
        with in_float32(model.module) if name == "float32" else nullcontext():
            one.run(few, range(len(few)), 1)
        means.append(one.sums()["key_sum"])
    return float(np.linalg.norm(means[1] - means[0]) / np.linalg.norm(means[0]))
