"""From a description of a run to its statistics: load, cut text, pass over it, keep checkpoints.

The one place where models, corpora, passes and the store meet. It runs in the worker process.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np

from poskernel_core.common import settings
from poskernel_core.common.axes import Tokens
from poskernel_core.common.errors import BadRequest, ComputeFailed
from poskernel_core.common.header import PassHeader
from poskernel_core.common.progress import Report
from poskernel_core.common.specs import Execution, RunSpec
from poskernel_core.common.views import Gathered
from poskernel_core.data import corpora
from poskernel_core.forward import loading
from poskernel_core.models.tokenizers import Tokenizer
from poskernel_core.passes import streaming
from poskernel_core.passes.plan import locate_again, plan_header
from poskernel_core.passes.streaming import Pass
from poskernel_core.passes.workshop import Workshop
from poskernel_core.statistics import Plan
from poskernel_core.storage.statistics import (
    drop_checkpoint,
    read_checkpoint,
    write_checkpoint,
    write_statistics,
)
from poskernel_core.storage.store import Store

__all__ = ["gather", "gather_run", "lower"]


def gather_run(workshop: Workshop, run: RunSpec, execution: Execution, report: Report) -> None:
    """Gather the statistics of a run and write them to the store.

    Raises:
        BadRequest: the run does not fit the model or the text.
        Cancelled: raised by ``report``.
        ComputeFailed: not even one window fits into memory, or the numbers are not finite.
        StoreFailed: the statistics cannot be written.
    """
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
    gathered = _attempts(workshop.store, run, model, windows, plan, execution, report)
    known = {"dtype_error": error, "tokens": _texts(run, windows, tokenizer)}
    header = gathered.header.model_copy(update=known)
    write_statistics(workshop.store, run, replace(gathered, header=header))
    drop_checkpoint(workshop.store, run)


def _attempts(
    store: Store,
    run: RunSpec,
    model: loading.LoadedModel,
    windows: Tokens,
    plan: Plan,
    execution: Execution,
    report: Report,
) -> Gathered:
    """Run the pass; where memory runs out, go on from the last checkpoint with half a batch."""
    batch = execution.batch
    while True:
        try:
            return gather(model, windows, plan, run, report, store=store, batch=batch)
        except streaming.OutOfMemory as error:
            tried = batch or streaming.default_batch(model.device.type, plan.context)
            batch = tried // 2
            if batch == 0:
                raise ComputeFailed(
                    f"Not even one window of {plan.context} tokens fits into memory: choose a "
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

    The first checkpoint follows the first batch, so that however often a pass is broken off, it
    gets further; the next ones come by time.

    Raises:
        ComputeFailed: a sum is not a finite number.
        NoSpace, ReadOnlyStore, StoreFailed: a checkpoint cannot be written.
    """
    began, pause = time.monotonic(), settings.checkpoint_seconds()
    work = Pass(model, plan, run.gather, run.dtype)
    if store:
        store.make_room(2 * work.nbytes())  # checkpoint and statistics
    resumed = done = _resume(work, store, run, plan)
    saved = -math.inf
    for rows in streaming.batches(plan.windows, plan.context, model.device.type, batch, done):
        report(done, plan.windows, "Reading windows of text")
        work.run(windows, rows, batch)
        done = rows.stop
        if store and done < plan.windows and time.monotonic() - saved >= pause:
            work.check_finite()
            write_checkpoint(store, run, done, work.sums())
            saved = time.monotonic()
    report(plan.windows, plan.windows, "Writing the statistics")
    work.check_finite()
    header = PassHeader(
        **plan_header(plan, run, str(model.device)).model_dump(),
        **work.facts.header(),
        resumed_at_window=resumed,
        seconds=round(time.monotonic() - began, 3),
    )
    return Gathered(header, streaming.finish(work.sums(), run.gather, plan))


def lower(
    model: loading.LoadedModel, plan: Plan, windows: Tokens, dtype: str, report: Report
) -> float:
    """Bring a float32 model to ``dtype``; return the measured relative error of mean keys."""
    if dtype == "float32":
        return 0.0
    report(0, plan.windows, f"Measuring the error of {dtype}")
    return streaming.dtype_error(model, plan, windows, dtype)


def _resume(work: Pass, store: Store | None, run: RunSpec, plan: Plan) -> int:
    """Restore a checkpoint if there is a fitting one; return the window to go on from."""
    found = read_checkpoint(store, run) if store else None
    if found is None:
        return 0
    header, sums = found
    if header["done"] >= plan.windows or not set(run.gather) <= set(header["gather"]):
        return 0
    work.restore(sums)
    return header["done"]


def _texts(run: RunSpec, windows: Tokens, tokenizer: Tokenizer | None) -> tuple[str, ...] | None:
    """Return the tokens of a single text, for labels on a page; None where there are more."""
    if run.windows > 1 or tokenizer is None:
        return None
    return tuple(tokenizer.decode_each(np.asarray(windows[0]).tolist()))
