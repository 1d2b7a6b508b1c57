"""Gather the statistics of a run: load the model, cut the text, run the pass, keep checkpoints.

This module combines models, corpora, passes and the store. It runs in the worker process.
"""

import hashlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from poskernel_core.common.axes import Tokens
from poskernel_core.common.errors import BadRequest, ComputeFailed
from poskernel_core.common.header import PassHeader
from poskernel_core.common.progress import Report
from poskernel_core.common.settings import settings
from poskernel_core.common.shards import WHOLE, Block, Shard
from poskernel_core.common.specs import Execution, Gather, RunSpec
from poskernel_core.common.views import Gathered
from poskernel_core.data import corpora
from poskernel_core.forward import loading
from poskernel_core.models.tokenizers import Tokenizer
from poskernel_core.passes import streaming
from poskernel_core.passes.merging import merge_shards
from poskernel_core.passes.plan import locate_again, plan_header, wants_table
from poskernel_core.passes.streaming import Pass
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.statistics import Plan, Sums
from poskernel_core.storage.shards import Made, drop_partial, is_written, write_partial
from poskernel_core.storage.statistics import (
    drop_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from poskernel_core.storage.store import Store

T = TypeVar("T")


def per_number(groups: int) -> int:
    """Return an upper bound of the bytes in the store per element of a block.

    The bound adds 4 bytes for the sum of each group, 8 bytes for a checkpoint in double precision,
    and 4 bytes per group for the finished statistics. The queries of all groups need these 4 bytes;
    a mean with its 16 bits for each group needs no more.
    """
    return 4 * groups + 8 + 4 * groups


def gather_run(
    shared: WorkerContext,
    run: RunSpec,
    execution: Execution,
    versions: Mapping[str, str],
    report: Report,
) -> None:
    """Gather the statistics of a run and write them to the store.

    Raises:
        BadRequest: the run does not fit the model or the text.
        Cancelled: raised by ``report``.
        ComputeFailed: not even one window fits into memory, or a sum is not finite.
        StoreFailed: the statistics cannot be written.
    """
    gather_shard(shared, run, WHOLE, execution, versions, report)
    merge_shards(shared.store, {}, run, WHOLE.of, report)


def gather_shard(
    shared: WorkerContext,
    run: RunSpec,
    shard: Shard,
    execution: Execution,
    versions: Mapping[str, str],
    report: Report,
) -> bool:
    """Gather the partial sums of one shard of a run and write them to the store, block by block.

    Returns whether the shard has any windows; the last of many shards may have none.

    Raises:
        BadRequest, Cancelled, ComputeFailed, StoreFailed: as :func:`gather_run`.
    """
    store = shared.store
    ready = _prepare(shared, run, execution, report)
    blocks = shard.blocks(ready.plan.windows, ready.plan.context)
    digest = hashlib.sha256(np.ascontiguousarray(ready.windows, dtype=np.int64).tobytes())
    made = Made(digest.hexdigest(), dict(versions))
    drop_partial(store, run, shard, but=made)
    work = Pass(ready.model, ready.plan, run.gather, run.dtype)
    store.make_room(work.numbers() * per_number(ready.plan.groups))
    total, done, batch = sum(len(block.windows) for block in blocks), 0, execution.batch
    begins = True
    for block in blocks:

        def told(read: int, before: int = done) -> None:
            report(before + read, total, "Reading windows of text")

        told(0)
        if not is_written(store, run, shard, block, made):
            keep = _Keep(store, shard, made)
            read = partial(_read, work, ready, run, block, keep=keep, told=told)
            (header, sums), batch = _attempts(read, ready, batch)
            resumed = done + header.resumed_at_window if begins else 0
            header = header.model_copy(update={**ready.known, "resumed_at_window": resumed})
            begins = False
            write_partial(store, run, shard, block, header, made, sums)
            drop_checkpoint(store, run, shard)
        done += len(block.windows)
    if not all(is_written(store, run, shard, block, made) for block in blocks):
        raise ComputeFailed(
            "The sums were dropped as soon as they were written: the store is too small for this "
            "run (POSKERNEL_CACHE_GB)."
        )
    report(total, total, "Writing the statistics")
    return bool(blocks)


@dataclass(frozen=True)
class _PreparedPass:
    """A model and its windows; ``known`` are extra fields for the pass header."""

    model: loading.LoadedModel
    windows: Tokens
    plan: Plan
    known: dict[str, Any]


def _prepare(
    shared: WorkerContext, run: RunSpec, execution: Execution, report: Report
) -> _PreparedPass:
    report(0, 0, "Loading the model")
    located = locate_again(run)
    ready = run.corpus.name.endswith(".npy") and run.destination is None
    tokenizer = None if ready and not wants_table(run) else shared.tokenizer(located)
    report(0, 0, "Cutting the text into windows")
    windows, plan = shared.prepare(run, execution, located, tokenizer)
    if corpora.resolve(run.corpus).fingerprint != run.corpus.fingerprint:
        raise BadRequest(f"Corpus {run.corpus.name!r} changed meanwhile: ask again.")
    model = shared.models.take(located, execution.device, run.dtype)
    error = lower(model, plan, windows, run.dtype, report)
    known = {"dtype_error": error, "tokens": _texts(run, windows, tokenizer)}
    return _PreparedPass(model, windows, plan, known)


def _attempts(
    work: Callable[[int | None], T], ready: _PreparedPass, batch: int | None
) -> tuple[T, int | None]:
    """Read a block; when memory runs out, retry from the last checkpoint with half the batch size.

    Returns the result of ``work`` and the batch size that fitted.
    """
    context = ready.plan.context
    while True:
        try:
            return work(batch), batch
        except streaming.OutOfMemory as error:
            tried = batch or streaming.default_batch(ready.model.device.type, context)
            batch = tried // 2
            if batch == 0:
                raise ComputeFailed(
                    f"Not even one window of {context} tokens fits into memory: choose a "
                    "shorter context or bfloat16 as precision."
                ) from error


def gather(
    model: loading.LoadedModel,
    windows: Tokens,
    plan: Plan,
    run: RunSpec,
    *,
    batch: int | None = None,
) -> Gathered:
    """Run a pass over windows and return all statistics in memory, without the store.

    Raises:
        ComputeFailed: a sum is not a finite number.
    """
    ready, work = _PreparedPass(model, windows, plan, {}), Pass(model, plan, run.gather, run.dtype)
    blocks, began = [], time.monotonic()
    for block in WHOLE.blocks(plan.windows, plan.context):
        header, sums = _read(work, ready, run, block, batch)
        blocks.append({name: _single(each) for name, each in sums.items()})
    header = header.model_copy(update={"seconds": round(time.monotonic() - began, 3)})
    layers = range(plan.geometry.n_layers)
    parts: dict[Gather, dict[str, np.ndarray]] = {}
    for name in run.gather:
        found = [
            streaming.finish(name, [_layer(block[name], layer) for block in blocks], plan)
            for layer in layers
            if all(layer < len(each) for each in blocks[0][name].values())
        ]
        parts[name] = {each: np.concatenate([one[each] for one in found]) for each in found[0]}
    return Gathered(header, parts)


def _single(sums: Sums) -> Sums:
    return {name: array.astype(np.float32) for name, array in sums.items()}


def _layer(sums: Sums, layer: int) -> Sums:
    return {name: array[layer : layer + 1] for name, array in sums.items()}


@dataclass(frozen=True)
class _Keep:
    """Where to keep checkpoints: the store, the shard, and the identity of the shard's sums."""

    store: Store
    shard: Shard
    made: Made


def _read(
    work: Pass,
    ready: _PreparedPass,
    run: RunSpec,
    block: Block,
    batch: int | None,
    *,
    keep: _Keep | None = None,
    told: Callable[[int], None] = lambda read: None,
) -> tuple[PassHeader, dict[Gather, Sums]]:
    """Read a block; return its header and its sums by statistic.

    The sums are views of the pass' buffers, valid until the pass reads the next block. The first
    checkpoint follows the first batch, so that even a pass that is interrupted often makes
    progress; later ones follow at intervals.

    Raises:
        ComputeFailed: a sum is not a finite number.
        NoSpace, ReadOnlyStore, StoreFailed: a checkpoint cannot be written.
    """
    began, pause = time.monotonic(), settings().checkpoint_seconds
    resumed = read = _resume(work, run, block, keep)
    saved, plan = -math.inf, ready.plan
    step = batch or streaming.default_batch(ready.model.device.type, plan.context)
    for rows in streaming.batches(block.windows[read:], step, plan.seen):
        told(read)
        work.run(ready.windows, rows, batch)
        read += len(rows)
        if keep and read < len(block.windows) and time.monotonic() - saved >= pause:
            work.check_finite()
            made = asdict(keep.made)
            write_checkpoint(keep.store, run, block.group, read, made, work.sums(), keep.shard)
            saved = time.monotonic()
    work.check_finite()
    header = PassHeader(
        **plan_header(plan, run, ready.model.where).model_dump(),
        **work.facts.header(),
        resumed_at_window=resumed,
        seconds=round(time.monotonic() - began, 3),
    )
    return header, work.block()


def lower(
    model: loading.LoadedModel, plan: Plan, windows: Tokens, dtype: str, report: Report
) -> float:
    """Convert a float32 model to ``dtype``; return the measured relative error of mean keys."""
    if dtype == "float32":
        return 0.0
    report(0, plan.windows, f"Measuring the error of {dtype}")
    return streaming.dtype_error(model, plan, windows, dtype)


def _resume(work: Pass, run: RunSpec, block: Block, keep: _Keep | None) -> int:
    """Restore the block's checkpoint if it matches; return the number of windows already read."""
    found = read_checkpoint(keep.store, run, keep.shard) if keep else None
    if keep and found is not None:
        header, sums = found
        fits = header["group"] == block.group and 0 < header["done"] < len(block.windows)
        same = header.get("made") == asdict(keep.made)
        if fits and same and set(run.gather) <= set(header["gather"]):
            work.restore(sums)
            return int(header["done"])
    work.clear()
    return 0


def _texts(run: RunSpec, windows: Tokens, tokenizer: Tokenizer | None) -> tuple[str, ...] | None:
    """Return the tokens of a single text, for labels on a page; None if there are several texts."""
    if run.windows > 1 or tokenizer is None:
        return None
    return tuple(tokenizer.decode_each(np.asarray(windows[0]).tolist()))
