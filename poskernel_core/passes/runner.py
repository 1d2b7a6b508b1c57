"""Gather the statistics of a run: load the model, cut the text, run the pass, keep checkpoints.

This module combines models, corpora, passes and the store. It runs in the worker process.
"""

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from poskernel_core.common.axes import Tokens
from poskernel_core.common.errors import BadRequest, Cancelled, ComputeFailed, TooSmall
from poskernel_core.common.header import PassHeader
from poskernel_core.common.progress import Report
from poskernel_core.common.settings import settings
from poskernel_core.common.shards import WHOLE, Block, Shard
from poskernel_core.common.specs import DEFAULT_TEXTS, Execution, Gather, RunSpec
from poskernel_core.common.views import Gathered
from poskernel_core.forward import loading
from poskernel_core.forward.memory import free_memory
from poskernel_core.models.geometry import bytes_gathered, bytes_kept, bytes_saved
from poskernel_core.passes import streaming
from poskernel_core.passes.forming import Stage
from poskernel_core.passes.merging import merge_shards
from poskernel_core.passes.prepare import header_of, locate_again, wants_texts
from poskernel_core.passes.streaming import Pass
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.statistics import Sizes, Sums
from poskernel_core.storage.encoding import Entry
from poskernel_core.storage.shards import Made, drop_partial, is_written, write_partial
from poskernel_core.storage.statistics import drop_checkpoint, read_checkpoint, write_checkpoint
from poskernel_core.storage.store import Store

OnStage = Callable[[Stage], bool]
"""Called with each stage of a pass; True ends the pass there."""

FIRST_STAGES = (4, 8)
"""The first stages, in windows; later ones follow the rounds."""

COST_OF_SAVING = 25.0
"""The pause between checkpoints is at least this many times what the last one took."""


TOO_SMALL = (
    "The store is too small for the sums of this run: raise POSKERNEL_CACHE_GB, or ask for a "
    "shorter context or fewer recorded positions."
)


def gather_run(
    shared: WorkerContext,
    run: RunSpec,
    execution: Execution,
    versions: Mapping[str, str],
    report: Report,
    on_stage: OnStage | None = None,
) -> None:
    """Gather the statistics of a run and write them to the store."""
    gather_shard(shared, run, WHOLE, execution, versions, report, on_stage, at_once=True)
    try:
        merge_shards(shared.store, {}, run, WHOLE.of, report)
    except BadRequest as error:  # the statistics drove sums out that were there a moment ago
        raise ComputeFailed(TOO_SMALL) from error


def gather_shard(
    shared: WorkerContext,
    run: RunSpec,
    shard: Shard,
    execution: Execution,
    versions: Mapping[str, str],
    report: Report,
    on_stage: OnStage | None = None,
    *,
    at_once: bool = False,
) -> bool:
    """Gather the partial sums of one shard of a run and write them to the store, block by block.

    With ``at_once``, of an unsplit run whose sums are in memory together, the statistics are
    written in place of the sums. With ``on_stage`` too, it is read in rounds over its groups, and
    ``on_stage`` gets the statistics of the first 4 and 8 windows, and those after each round but
    the last; the pass ends when it returns True, with the statistics of that stage as those of the
    run. A run of one window per group has a single round, and no stages; nor has a run whose first
    windows are not those of a shorter one.

    Returns whether the shard has any windows; the last of many shards may have none.
    """
    store = shared.store
    ready = _prepare(shared, run, execution, report)
    blocks = shard.blocks(ready.sizes.windows, ready.sizes.context)
    digest = hashlib.sha256(np.ascontiguousarray(ready.windows, dtype=np.int64).tobytes())
    made = Made(digest.hexdigest(), dict(versions))
    drop_partial(store, run, shard, but=made)
    work = _Gathering(ready, run, store, shard, made, blocks, execution.batch, report, at_once)
    store.make_room(work.room(saved=True))
    if work.room() > store.limit:
        raise TooSmall(TOO_SMALL)
    ends = [len(block.windows) for block in blocks[:1]]
    # whether the first windows are those of a shorter run
    alike = run.corpus.name.endswith(".npy") or ready.sizes.dealt != "stretches"
    alike = alike or ready.sizes.windows <= DEFAULT_TEXTS
    if on_stage is not None and alike and work.together:
        ends = streaming.round_ends(ends[0], work.step)
    try:
        for end in ends[:-1]:
            for block in blocks:
                work.read(block, end)
                stage = work.stage()
                if stage is not None and on_stage is not None and on_stage(stage):
                    work.finish(stage)
                    return True
        for block in blocks:
            work.read(block, len(block.windows))
            if not work.together:
                work.write(block)
        if (final := work.whole()) is not None:
            report(work.total, work.total, "Writing the statistics")
            work.finish(final)
            return True
        for block in blocks:
            work.write(block)
    except Cancelled:
        work.save()
        raise
    if not all(is_written(store, run, shard, block, made) for block in blocks):
        raise ComputeFailed(TOO_SMALL)
    report(work.total, work.total, "Writing the statistics")
    return bool(blocks)


@dataclass(frozen=True)
class _PreparedPass:
    """A model and its windows; ``known`` are extra fields for the pass header."""

    model: loading.LoadedModel
    windows: Tokens
    sizes: Sizes
    known: dict[str, Any]


def _prepare(
    shared: WorkerContext, run: RunSpec, execution: Execution, report: Report
) -> _PreparedPass:
    report(0, 0, "Loading the model")
    located = locate_again(run)
    ready = run.corpus.name.endswith(".npy") and run.destination is None
    tokenizer = None if ready and not wants_texts(run) else shared.tokenizer(located)
    report(0, 0, "Cutting the text into windows")
    windows, sizes = shared.prepare(run, execution, located, tokenizer)
    model = shared.models.take(located, execution.device, run.dtype)
    sizes = replace(sizes, geometry=model.geometry)
    known: dict[str, Any] = {"dtype_error": 0.0, "tokens": None}
    if run.dtype != "float32":
        report(0, sizes.windows, f"Measuring the error of {run.dtype}")
        known["dtype_error"] = streaming.dtype_error(model, sizes, windows, run.dtype)
    if run.windows == 1 and tokenizer is not None:  # of a single text, for labels on a page
        known["tokens"] = tuple(tokenizer.decode_each(np.asarray(windows[0]).tolist()))
    return _PreparedPass(model, windows, sizes, known)


def gather(
    model: loading.LoadedModel,
    windows: Tokens,
    sizes: Sizes,
    run: RunSpec,
    *,
    batch: int | None = None,
) -> Gathered:
    """Run a pass over windows and return all statistics in memory, without the store."""
    ready, began, blocks = _PreparedPass(model, windows, sizes, {}), time.monotonic(), []
    work = Pass(model, sizes, run.gather, run.dtype)
    for block in WHOLE.blocks(sizes.windows, sizes.context):
        work.clear()
        work.run(windows, block.windows, batch)
        work.check_finite()
        blocks.append(
            {
                name: {key: array.astype(np.float32) for key, array in sums.items()}
                for name, sums in work.block().items()
            }
        )
    header = _header(ready, run, work.facts, time.monotonic() - began)
    layers = range(sizes.geometry.n_layers)
    parts: dict[Gather, dict[str, np.ndarray]] = {}
    for name in run.gather:
        finished = [
            streaming.finish(name, [_layer(block[name], layer) for block in blocks], sizes)
            for layer in layers
            if all(layer < len(array) for array in blocks[0][name].values())
        ]
        parts[name] = {key: np.concatenate([one[key] for one in finished]) for key in finished[0]}
    return Gathered(header, parts)


def _layer(sums: Sums, layer: int) -> Sums:
    return {name: array[layer : layer + 1] for name, array in sums.items()}


class _Gathering:
    """The groups of a shard while they are read: their sums, and how many windows each has.

    ``made`` identifies the sums, and the checkpoints of them in the store. ``together``: the sums
    of all groups stay in memory to the end.
    """

    def __init__(
        self,
        ready: _PreparedPass,
        run: RunSpec,
        store: Store,
        shard: Shard,
        made: Made,
        blocks: Sequence[Block],
        batch: int | None,
        report: Report,
        at_once: bool,
    ) -> None:
        self.total = sum(len(block.windows) for block in blocks)
        self.step = batch or streaming.default_batch(ready.model.device.type, ready.sizes.context)
        self._ready, self._run, self._report = ready, run, report
        self._store, self._shard, self._made = store, shard, made
        self._blocks = {block.group: block for block in blocks}
        self._works: dict[int, Pass] = {}
        self._done = dict.fromkeys(self._blocks, 0)
        self._seconds = dict.fromkeys(self._blocks, 0.0)
        self._unsaved: set[int] = set()
        self._saved = -math.inf
        self._pause = settings().checkpoint_seconds
        for block in blocks:
            if is_written(store, run, shard, block, made):
                self._done[block.group] = len(block.windows)
        self._written = {group for group, done in self._done.items() if done}
        self._new = partial(Pass, ready.model, ready.sizes, run.gather, run.dtype)
        self._spare = [self._new()]
        self._numbers = self._spare[0].numbers()
        self._size, self._checkpoint_size = sum(self._numbers.values()), bytes_saved(self._numbers)
        self._kept = bytes_kept(self._numbers, len(blocks))
        self.together = at_once and shard == WHOLE and self._fits_together()
        for block in blocks:
            if block.group not in self._written:
                self._done[block.group] = self._read_before(block.group)
        self._begun = {group for group, done in self._done.items() if done} - self._written
        self._resumed = self._staged = sum(self._done.values())

    def _fits_together(self) -> bool:
        """Return whether the sums of all groups fit into half of the free memory."""
        device = self._ready.model.device
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_memory()
        return 2 * 8 * self._size * len(self._blocks) <= free and not self._written

    def room(self, saved: bool = False) -> int:
        """Return the bytes of this shard, without headers, that the store must hold.

        With ``saved``, those of checkpoints are counted.
        """
        one, groups = self._checkpoint_size, len(self._blocks)
        if self.together:  # checkpoints are dropped before the statistics, if need be
            most = min(groups, self._store.limit // one)
            return max(self._kept, saved * one * most)
        if self._shard == WHOLE:
            return bytes_gathered(self._numbers, groups) + saved * one
        widths = (4 if block.whole else 8 for block in self._blocks.values())
        return self._size * sum(widths) + saved * one

    def read(self, block: Block, end: int) -> None:
        """Read a group up to its window ``end``.

        When memory runs out, the group is read from its last checkpoint with half the batch size.
        A checkpoint follows the first batch, so that even a pass that is interrupted often makes
        progress; later ones follow at intervals.
        """
        group, seen = block.group, self._ready.sizes.seen
        while self._done[group] < end:
            work = self._work(group)
            try:
                for rows in streaming.batches(
                    block.windows[self._done[group] : end], self.step, seen
                ):
                    self._report(sum(self._done.values()), self.total, "Reading windows of text")
                    began = time.monotonic()
                    work.run(self._ready.windows, rows, self.step)
                    self._facts = work.facts
                    self._seconds[group] += time.monotonic() - began
                    self._done[group] += len(rows)
                    self._unsaved.add(group)
                    if time.monotonic() - self._saved >= self._pause:
                        self.save()
            except streaming.OutOfMemory as error:
                self.step //= 2
                if self.step == 0:
                    raise ComputeFailed(
                        f"Not even one window of {self._ready.sizes.context} tokens fits into "
                        "memory: choose a shorter context or bfloat16 as precision."
                    ) from error
                self._forget(group)
                self._done[group] = self._read_before(group)

    def _work(self, group: int) -> Pass:
        if group not in self._works:
            work = self._works[group] = self._spare.pop() if self._spare else self._new()
            work.clear()
            entry = self._checkpoint(group) if self._done[group] else None
            self._done[group] = 0 if entry is None else int(entry[0]["done"])
            if entry is not None:
                work.restore(entry[1])
        return self._works[group]

    def _checkpoint(self, group: int) -> Entry | None:
        entry = read_checkpoint(self._store, self._run, self._shard, group)
        if entry is None:
            return None
        header = entry[0]
        fits = header["group"] == group
        fits &= 0 < header["done"] < len(self._blocks[group].windows)
        same = header.get("made") == asdict(self._made)
        return entry if fits and same and set(self._run.gather) <= set(header["gather"]) else None

    def _read_before(self, group: int) -> int:
        entry = self._checkpoint(group)
        return 0 if entry is None else int(entry[0]["done"])

    def save(self) -> None:
        """Write the sums of groups that were read, and checkpoints as far as the store has room."""
        began, made = time.monotonic(), asdict(self._made)
        for group in sorted(self._unsaved):
            done, work = self._done[group], self._works[group]
            if done == len(self._blocks[group].windows):
                self.write(self._blocks[group])
            elif not self.together or self._taken(group) <= self._store.limit:
                work.check_finite()
                sums, shard = work.sums(), self._shard
                write_checkpoint(self._store, self._run, group, done, made, sums, shard)
                self._begun.add(group)
        self._unsaved.clear()
        self._saved = time.monotonic()
        if self._pause:
            self._pause = max(self._pause, COST_OF_SAVING * (self._saved - began))

    def _taken(self, *also: int) -> int:
        return self._checkpoint_size * len(self._begun | {*also})

    def write(self, block: Block) -> None:
        """Write the sums of a group that was read to its end, and forget them."""
        group, shard = block.group, self._shard
        if group in self._written:
            return
        work = self._work(group)
        work.check_finite()
        seconds = self._seconds[group]
        header = _header(self._ready, self._run, work.facts, seconds, self._resumed)
        write_partial(self._store, self._run, shard, block, header, self._made, work.block())
        self._written.add(group)
        self._forget(group)
        drop_checkpoint(self._store, self._run, shard, group)

    def _forget(self, group: int) -> None:
        self._spare = [self._works.pop(group)]
        self._unsaved.discard(group)

    def finish(self, stage: Stage) -> None:
        """Write a stage as the statistics of the run, and drop its checkpoints.

        They are dropped before if the store has no room for both.
        """
        if self._taken() + self._kept > self._store.limit:
            self._drop()
        stage.write(self._store, self._run)
        self._drop()

    def _drop(self) -> None:
        for group in self._blocks:
            drop_checkpoint(self._store, self._run, self._shard, group)

    def stage(self) -> Stage | None:
        """Return the stage that has just been reached; None between two stages."""
        counts = list(self._done.values())
        windows = sum(counts)
        first = windows in FIRST_STAGES and counts[:windows] == [1] * windows
        if windows <= self._staged or not (first or len(set(counts)) == 1):
            return None
        self._staged = windows
        return self._stage(windows)

    def whole(self) -> Stage | None:
        """Return the stage of all windows; None if some are only in the store."""
        return self._stage(self.total) if self.together and not self._written else None

    def _stage(self, windows: int) -> Stage | None:
        ready, run = self._ready, self._run.model_copy(update={"windows": windows, "until": None})
        sizes = replace(ready.sizes, windows=windows)
        works = [self._work(group) for group in range(sizes.groups)]
        if sum(self._done.values()) < windows:  # a checkpoint is gone
            return None
        for work in works:
            work.check_finite()
        seconds = sum(self._seconds.values())
        header = _header(replace(ready, sizes=sizes), run, self._facts, seconds, self._resumed)
        return Stage(run, self.total, sizes, header, works)


def _header(
    ready: _PreparedPass, run: RunSpec, facts: dict[str, Any], seconds: float, resumed: int = 0
) -> PassHeader:
    made = {"seconds": round(seconds, 3), "resumed_at_window": resumed}
    header = header_of(ready.sizes, run, ready.model.where).model_dump()
    return PassHeader(**header | facts | ready.known | made)
