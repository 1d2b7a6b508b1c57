"""From a description of a run to its statistics: load, cut text, pass over it, keep checkpoints.

The one place where models, corpora, passes and the store meet. It runs in the worker process.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from poskernel_core.common import settings
from poskernel_core.common.axes import Tokens
from poskernel_core.common.errors import BadRequest, ComputeFailed
from poskernel_core.common.header import PassHeader
from poskernel_core.common.progress import Report
from poskernel_core.common.shards import Shard
from poskernel_core.common.specs import Execution, Gather, RunSpec
from poskernel_core.common.views import Gathered
from poskernel_core.data import corpora
from poskernel_core.forward import loading
from poskernel_core.models.tokenizers import Tokenizer
from poskernel_core.passes import streaming
from poskernel_core.passes.plan import locate_again, plan_header
from poskernel_core.passes.streaming import Pass
from poskernel_core.passes.workshop import Workshop
from poskernel_core.statistics import Plan, Sums
from poskernel_core.storage.shards import write_partial
from poskernel_core.storage.statistics import (
    drop_checkpoint,
    read_checkpoint,
    write_checkpoint,
    write_statistics,
)
from poskernel_core.storage.store import Store

__all__ = ["gather", "gather_run", "gather_shard", "lower", "sums_of"]

T = TypeVar("T")


def gather_run(workshop: Workshop, run: RunSpec, execution: Execution, report: Report) -> None:
    """Gather the statistics of a run and write them to the store.

    Raises:
        BadRequest: the run does not fit the model or the text.
        Cancelled: raised by ``report``.
        ComputeFailed: not even one window fits into memory, or the numbers are not finite.
        StoreFailed: the statistics cannot be written.
    """
    ready = _prepare(workshop, run, execution, report)
    gathered = _attempts(
        lambda batch: gather(
            ready.model, ready.windows, ready.plan, run, report, store=workshop.store, batch=batch
        ),
        ready,
        execution,
    )
    header = gathered.header.model_copy(update=ready.known)
    write_statistics(workshop.store, run, replace(gathered, header=header))
    drop_checkpoint(workshop.store, run)


def gather_shard(
    workshop: Workshop,
    run: RunSpec,
    shard: Shard,
    execution: Execution,
    versions: Mapping[str, str],
    report: Report,
) -> bool:
    """Gather the partial sums of one shard of a run and write them to the store.

    Returns whether there was anything to write: the last of many shards may have no windows.

    Raises:
        BadRequest, Cancelled, ComputeFailed, StoreFailed: as :func:`gather_run`.
    """
    store = workshop.store
    ready = _prepare(workshop, run, execution, report)
    if not shard.rows(ready.plan.windows):
        return False
    header, sums = _attempts(
        lambda batch: sums_of(
            ready.model,
            ready.windows,
            ready.plan,
            run,
            report,
            store=store,
            batch=batch,
            shard=shard,
        ),
        ready,
        execution,
    )
    header = header.model_copy(update=ready.known)
    tokens = hashlib.sha256(np.ascontiguousarray(ready.windows, dtype=np.int64).tobytes())
    write_partial(store, run, shard, header, tokens.hexdigest(), versions, sums)
    drop_checkpoint(store, run, shard)
    return True


@dataclass(frozen=True)
class _Ready:
    """A model and its windows; ``known`` is what the header of a pass learns of them."""

    model: loading.LoadedModel
    windows: Tokens
    plan: Plan
    known: dict[str, Any]


def _prepare(workshop: Workshop, run: RunSpec, execution: Execution, report: Report) -> _Ready:
    report(0, 0, "Loading the model")
    located = locate_again(run)
    ready = run.corpus.name.endswith(".npy") and run.destination is None
    tokenizer = None if ready else workshop.tokenizer(located)
    report(0, 0, "Cutting the text into windows")
    windows, plan = workshop.prepare(run, execution, located, tokenizer)
    if corpora.resolve(run.corpus).fingerprint != run.corpus.fingerprint:
        raise BadRequest(f"Corpus {run.corpus.name!r} changed meanwhile: ask again.")
    model = workshop.models.take(located, execution.device, run.dtype)
    error = lower(model, plan, windows, run.dtype, report)
    known = {"dtype_error": error, "tokens": _texts(run, windows, tokenizer)}
    return _Ready(model, windows, plan, known)


def _attempts(work: Callable[[int | None], T], ready: _Ready, execution: Execution) -> T:
    """Run the pass; where memory runs out, go on from the last checkpoint with half a batch."""
    batch, context = execution.batch, ready.plan.context
    while True:
        try:
            return work(batch)
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
    report: Report,
    *,
    store: Store | None = None,
    batch: int | None = None,
) -> Gathered:
    """Pass over the windows batch by batch; with a store, from its checkpoint on.

    Raises:
        ComputeFailed, NoSpace, ReadOnlyStore, StoreFailed: as :func:`sums_of`.
    """
    header, sums = sums_of(model, windows, plan, run, report, store=store, batch=batch)
    found = {name: array for each in sums.values() for name, array in each.items()}
    return Gathered(header, streaming.finish(found, run.gather, plan))


def sums_of(
    model: loading.LoadedModel,
    windows: Tokens,
    plan: Plan,
    run: RunSpec,
    report: Report,
    *,
    store: Store | None = None,
    batch: int | None = None,
    shard: Shard | None = None,
) -> tuple[PassHeader, dict[Gather, Sums]]:
    """Return the sums of a pass over all windows, or over those of a shard, by statistic.

    The first checkpoint follows the first batch, so that however often a pass is broken off, it
    gets further; the next ones come by time.

    Raises:
        ComputeFailed: a sum is not a finite number.
        NoSpace, ReadOnlyStore, StoreFailed: a checkpoint cannot be written.
    """
    began, pause = time.monotonic(), settings.checkpoint_seconds()
    span = range(plan.windows) if shard is None else shard.rows(plan.windows)
    work = Pass(model, plan, run.gather, run.dtype)
    if store:
        store.make_room(2 * work.nbytes())  # checkpoint and statistics
    resumed = done = _resume(work, store, run, span, shard)
    saved = -math.inf
    for rows in streaming.batches(span.stop, plan.context, model.device.type, batch, done):
        report(done - span.start, len(span), "Reading windows of text")
        work.run(windows, rows, batch)
        done = rows.stop
        if store and done < span.stop and time.monotonic() - saved >= pause:
            work.check_finite()
            write_checkpoint(store, run, done, work.sums(), shard)
            saved = time.monotonic()
    report(len(span), len(span), "Writing the statistics")
    work.check_finite()
    header = PassHeader(
        **plan_header(plan, run, model.where).model_dump(),
        **work.facts.header(),
        resumed_at_window=resumed if resumed > span.start else 0,
        seconds=round(time.monotonic() - began, 3),
    )
    return header, work.hand_over()


def lower(
    model: loading.LoadedModel, plan: Plan, windows: Tokens, dtype: str, report: Report
) -> float:
    """Bring a float32 model to ``dtype``; return the measured relative error of mean keys."""
    if dtype == "float32":
        return 0.0
    report(0, plan.windows, f"Measuring the error of {dtype}")
    return streaming.dtype_error(model, plan, windows, dtype)


def _resume(work: Pass, store: Store | None, run: RunSpec, span: range, shard: Shard | None) -> int:
    """Restore a checkpoint if there is a fitting one; return the window to go on from."""
    found = read_checkpoint(store, run, shard) if store else None
    if found is None:
        return span.start
    header, sums = found
    if header["done"] not in span or not set(run.gather) <= set(header["gather"]):
        return span.start
    work.restore(sums)
    return header["done"]


def _texts(run: RunSpec, windows: Tokens, tokenizer: Tokenizer | None) -> tuple[str, ...] | None:
    """Return the tokens of a single text, for labels on a page; None where there are more."""
    if run.windows > 1 or tokenizer is None:
        return None
    return tuple(tokenizer.decode_each(np.asarray(windows[0]).tolist()))
