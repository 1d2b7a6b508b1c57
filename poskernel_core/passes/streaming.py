"""The streaming forward pass: windows of tokens in, sums out, in shards.

A pass runs the model once over many windows and feeds the statistics. Nothing of the shape
``[windows, ...]`` is kept, so memory does not grow with the number of texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from poskernel_core.common.attention import ScoreRule
from poskernel_core.common.axes import Tokens
from poskernel_core.common.errors import ComputeFailed
from poskernel_core.common.specs import OF_PATTERNS, Gather
from poskernel_core.forward.attention import AttentionCall
from poskernel_core.forward.loading import LoadedModel
from poskernel_core.forward.memory import in_float32
from poskernel_core.forward.observers import Batch, Observer
from poskernel_core.forward.precision import precision
from poskernel_core.statistics import STATISTICS, Plan, Sums

__all__ = [
    "Facts",
    "OutOfMemory",
    "Pass",
    "add",
    "batches",
    "default_batch",
    "dtype_error",
    "finish",
    "shards",
]

TOKENS_PER_BATCH = {"cpu": 2048, "mps": 8192, "cuda": 32768}
TOKENS_PER_SHARD = {"cpu": 16384, "mps": 65536, "cuda": 262144}


def default_batch(device: str, context: int) -> int:
    """Return how many windows of ``context`` tokens are read at a time unless told otherwise."""
    return max(1, TOKENS_PER_BATCH.get(device, 2048) // context)


class OutOfMemory(Exception):
    """A batch did not fit; sums of the running shard are spoilt."""


@dataclass(frozen=True)
class Facts:
    """What only the running model knows: how each layer makes scores, and what its queries see."""

    rules: tuple[ScoreRule, ...]

    def header(self) -> dict[str, Any]:
        """Return the rules as the fields of a pass header; what no layer has is left empty."""
        few = {
            "chunks": tuple(rule.chunk for rule in self.rules),
            "caps": tuple(rule.cap for rule in self.rules),
            "slopes": tuple(rule.slopes for rule in self.rules),
        }
        return {
            "scales": tuple(rule.scale for rule in self.rules),
            "sliding_windows": tuple(rule.window for rule in self.rules),
        } | {name: found if any(found) else () for name, found in few.items()}


def shards(windows: int, context: int, device: str = "cpu") -> list[range]:
    """Cut ``windows`` into consecutive shards of a few seconds each."""
    size = max(1, TOKENS_PER_SHARD.get(device, 16384) // context)
    return [range(first, min(first + size, windows)) for first in range(0, windows, size)]


def batches(
    windows: int, context: int, device: str = "cpu", batch: int | None = None, done: int = 0
) -> Iterator[range]:
    """Yield what is read at a time, shard by shard, of the windows from ``done`` on."""
    step = batch or default_batch(device, context)
    for shard in shards(windows, context, device):
        for first in range(shard.start, shard.stop, step):
            last = min(first + step, shard.stop)
            if last > done:
                yield range(max(first, done), last)


def add(left: Sums, right: Sums) -> Sums:
    """Merge the sums of two disjoint sets of windows."""
    return {name: np.asarray(left[name] + right[name]) for name in left}


def finish(sums: Sums, gather: Sequence[Gather], plan: Plan) -> dict[Gather, dict[str, np.ndarray]]:
    """Turn the sums of all windows into the means of each statistic, ``[layer, ...]`` each."""
    seen = replace(plan, windows=plan.seen)
    return {
        name: STATISTICS[name].finish(sums, seen if name in OF_PATTERNS else plan)
        for name in gather
    }


class Pass:
    """One model over one set of windows; holds the sums gathered so far."""

    def __init__(
        self, model: LoadedModel, plan: Plan, gather: Sequence[Gather], dtype: str = "float32"
    ) -> None:
        self.model = model
        self.plan = plan
        self.dtype = dtype
        self._names = tuple(gather)
        self._statistics = [STATISTICS[g](plan, model.device) for g in gather]
        self._of_all = [each for each in self._statistics if each.name not in OF_PATTERNS]
        self._calls = _Calls()

    def run(self, windows: Tokens, shard: range, batch: int | None = None) -> None:
        """Add the windows of one shard.

        Raises:
            OutOfMemory: a batch did not fit; start again from older sums, with less.
        """
        step = batch or default_batch(self.model.device.type, self.plan.context)
        seen = min(max(self.plan.seen, shard.start), shard.stop)
        with precision(self.dtype):
            for part in (range(shard.start, seen), range(seen, shard.stop)):
                for first in range(part.start, part.stop, step):
                    rows = windows[first : min(first + step, part.stop)]
                    tokens = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.int64))
                    self._read(tokens, range(first, first + len(rows)))

    def _read(self, tokens: Tensor, samples: range) -> None:
        told = self._statistics if samples.start < self.plan.seen else self._of_all
        observers = [self._calls, *told]
        try:
            self.model.run(tokens, observers=observers, samples=samples, until=-1)
        except torch.OutOfMemoryError as error:
            raise OutOfMemory from error
        except RuntimeError as error:
            if "allocate memory" in str(error):
                raise OutOfMemory from error
            raise

    @property
    def facts(self) -> Facts:
        """The rule of every layer; known after the first batch."""
        layers = range(self.plan.geometry.n_layers)
        return Facts(tuple(self._calls.seen[layer] for layer in layers))

    def sums(self) -> Sums:
        """Return a copy of the sums so far, as NumPy arrays."""
        return {name: total.cpu().numpy().copy() for name, total in self._totals()}

    def hand_over(self) -> dict[Gather, Sums]:
        """End the pass: return its sums under the names of their statistics, without a copy.

        The pass has none any more, so that nothing is ever added to what was handed over.
        """
        done, self._statistics, self._of_all = self._statistics, [], []
        return {
            name: {each: total.cpu().numpy() for each, total in statistic.sums.items()}
            for name, statistic in zip(self._names, done, strict=True)
        }

    def nbytes(self) -> int:
        """Return the size of the sums."""
        return sum(total.nbytes for _, total in self._totals())

    def check_finite(self) -> None:
        """Check that no sum has become infinite or NaN.

        Raises:
            ComputeFailed: one has; the message names it.
        """
        for name, total in self._totals():
            for layer, sums in enumerate(total):
                if not torch.isfinite(sums).all():
                    raise ComputeFailed(
                        f"The model's numbers in layer {layer} are not finite ({name}): its "
                        f"weights are too large for {self.dtype}, or damaged."
                    )

    def restore(self, sums: Sums) -> None:
        """Set the sums to those of an earlier pass over other windows (a checkpoint)."""
        for name, total in self._totals():
            total.copy_(torch.from_numpy(sums[name]))

    def _totals(self) -> Iterator[tuple[str, Tensor]]:
        for statistic in self._statistics:
            yield from statistic.sums.items()


class _Calls(Observer):
    """Sees how every layer makes scores; a window or chunk only where it hides anything."""

    def __init__(self) -> None:
        self.seen: dict[int, ScoreRule] = {}

    def attention(self, call: AttentionCall, batch: Batch) -> None:
        length, rule = call.q.shape[2], call.rule
        self.seen[call.layer] = replace(
            rule,
            window=rule.window if rule.window is not None and rule.window < length else None,
            chunk=rule.chunk if rule.chunk is not None and rule.chunk < length else None,
        )


def dtype_error(model: LoadedModel, plan: Plan, windows: Tokens, dtype: str) -> float:
    """Return the relative error of mean keys in ``dtype`` against float32, on two windows.

    The model leaves in ``dtype``. The error is
    ``|m - m32| / |m32|`` (Euclidean norms over all layers, heads and positions). A model that was
    read into 16 bits is computed in float32 part by part, so that it is never there twice.
    """
    few = windows[:2]
    whole = next(model.module.parameters()).dtype == torch.float32
    means = []
    for name in ("float32", dtype):
        if whole:
            model.cast(name)
        one = Pass(model, plan, ("keys",), name)
        with in_float32(model.module) if name == "float32" else nullcontext():
            one.run(few, range(len(few)), 1)
        means.append(one.sums()["key_sum"])
    return float(np.linalg.norm(means[1] - means[0]) / np.linalg.norm(means[0]))
