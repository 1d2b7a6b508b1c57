"""Compute the result of a request: gather its statistics, then run the analysis or experiment.

This runs in the worker process of :mod:`poskernel_core.engine.engine`. Only the
functions that run a model import torch; analyses of stored statistics work without it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from poskernel_core.analyses.base import Analysis, ExperimentContext
from poskernel_core.common.errors import BadRequest, ComputeFailed
from poskernel_core.common.heads import layer_of
from poskernel_core.common.progress import Report
from poskernel_core.common.specs import Execution, Gather, RunSpec
from poskernel_core.common.views import StatisticsView
from poskernel_core.engine.provenance import NOT_KEPT, keep, software, stored
from poskernel_core.engine.requests import CanonicalRequest, canonical_of
from poskernel_core.models import catalog
from poskernel_core.storage.shards import is_begun
from poskernel_core.storage.statistics import (
    LayerMissing,
    StoredStatistics,
    in_passes,
    missing_statistics,
    read_checkpoint,
    windows_of,
)
from poskernel_core.storage.store import Store

if TYPE_CHECKING:
    from poskernel_core.passes.worker_context import WorkerContext

ATTEMPTS = 3
DROPPED = (
    "The statistics were dropped as soon as they were written: the store is too small for this run "
    "(POSKERNEL_CACHE_GB)."
)


def missing_runs(store: Store, asked: CanonicalRequest) -> list[RunSpec]:
    """Return the passes to run, each with the statistics that the store lacks.

    Raises:
        BadRequest: the parameters do not fit the run.
    """
    passes: dict[RunSpec, set[Gather]] = {}
    for run, windows in in_passes(asked.needs.values()):
        passes.setdefault(windows, set()).update(missing_statistics(store, run))
    return [_gathering(run, missing) for run, missing in passes.items() if missing]


def _gathering(run: RunSpec, statistics: Iterable[Gather]) -> RunSpec:
    """Return the run with these statistics to gather."""
    return run.model_copy(update={"gather": tuple(sorted(statistics))})


def gather_missing(
    shared: WorkerContext,
    asked: CanonicalRequest,
    execution: Execution,
    report: Report,
    others: Sequence[CanonicalRequest] = (),
) -> None:
    """Gather the missing statistics of a request.

    If another process is reading the same windows, wait for it instead of repeating its work. The
    pass also gathers the statistics that the queued requests ``others`` need from these windows. An
    interrupted pass is finished first; statistics that it did not include follow in another pass.

    Raises:
        BadRequest, Cancelled, ComputeFailed, StoreFailed: as ``runner.gather_run``.
    """
    from poskernel_core.passes.runner import gather_run  # torch

    def wait() -> None:
        report(0, 0, "Waiting for another process at the same work")

    store = shared.store
    wanted = [run for each in (asked, *others) for run in each.needs.values()]
    for windows in dict.fromkeys(windows_of(run) for run in missing_runs(store, asked)):
        with store.lock(windows.digest(kind="lock"), wait):
            together = {g for run in wanted if windows_of(run) == windows for g in run.gather}
            missing = set(missing_statistics(store, _gathering(windows, together)))
            while missing:
                begun = read_checkpoint(store, windows)
                read = set(begun[0]["gather"]) if begun else set()
                part = {g for g in missing if g in read or is_begun(store, windows, g)}
                gather_run(
                    shared,
                    _gathering(windows, part or missing),
                    execution,
                    software(),
                    report,
                )
                missing -= part or missing


def open_views(store: Store, asked: CanonicalRequest) -> dict[str, StatisticsView]:
    """Return the statistics that a request needs, by role.

    Raises:
        LayerMissing: some are no longer in the store.
    """
    views: dict[str, StatisticsView] = {}
    for role, run in asked.needs.items():
        view = StoredStatistics.open(store, run)
        if view is None:
            raise LayerMissing(role)
        views[role] = view
    return views


def compute(store: Store, asked: CanonicalRequest, report: Report) -> None:
    """Run an analysis of statistics in the store and write its result.

    Raises:
        BadRequest: the parameters do not fit the run.
        Cancelled: raised by ``report``.
        LayerMissing: the statistics are no longer in the store.
        StoreFailed: the result cannot be written.
    """
    began, analysis = time.monotonic(), asked.question
    assert isinstance(analysis, Analysis)
    views = open_views(store, asked)
    _check_cell(asked.params, views["main"].header.reasons)
    result = analysis.answer(
        views, asked.params, lambda done, total: report(done, total, f"Computing {analysis.title}")
    )
    header = views["main"].header
    tokens = views.get("queries", views["main"]).header.tokens or header.tokens
    keep(store, asked, result, header, tokens, time.monotonic() - began)


def compute_part(
    shared: WorkerContext,
    asked: CanonicalRequest,
    first: int,
    execution: Execution,
    report: Report,
) -> int | None:
    """Compute and store the next missing part of a composition, from part ``first`` (0-based) on.

    Returns the number of the part to continue with, or None after the last. Stored parts are
    skipped. One pass gathers all statistics that several parts need from the same windows.

    Raises:
        BadRequest, ComputeFailed, StoreFailed: a part fails, or the store is too small to keep all
            parts.
        Cancelled: raised by ``report``; the parts done so far are kept.
    """
    parts = list(asked.parts().values())
    for number in range(first, len(parts)):

        def told(_done: int, _total: int, _note: str, before: int = number) -> None:
            report(before, len(parts), "Parts done")

        told(0, 0, "")
        found = _located(parts[number])
        if stored(shared.store, found.key) is None:  # read in full, as for the composition
            _compute_now(shared, found, parts[number + 1 :], execution, told)
            if number + 1 < len(parts):
                return number + 1
    if not all(shared.store.has(part.key) for part in asked.parts().values()):
        raise ComputeFailed(NOT_KEPT)
    return None


def _compute_now(
    shared: WorkerContext,
    found: CanonicalRequest,
    following: Sequence[CanonicalRequest],
    execution: Execution,
    report: Report,
) -> None:
    later = [
        other
        for other in following
        if other.run.model == found.run.model and not shared.store.has(other.key)
    ]
    for _ in range(ATTEMPTS):  # another process may evict the statistics before they are used
        gather_missing(shared, found, execution, report, later)
        with contextlib.suppress(LayerMissing):
            if found.experiment is None:
                compute(shared.store, found, report)
            else:
                perform(shared, found, execution, report)
            return
    raise ComputeFailed(DROPPED)


def _located(part: CanonicalRequest) -> CanonicalRequest:
    """Return a part with its model's fingerprint; this may ask the hub.

    Raises:
        UnknownModel, NoNetwork: as :func:`poskernel_core.models.catalog.locate`.
    """
    model = part.run.model
    if model.fingerprint:
        return part
    found = catalog.locate(model.name, model.revision).spec
    return canonical_of(part.question, part.run.model_copy(update={"model": found}), part.params)


def perform(
    shared: WorkerContext, asked: CanonicalRequest, execution: Execution, report: Report
) -> None:
    """Run an experiment and write its result; the statistics it needs must be in the store.

    Raises:
        BadRequest: the parameters do not fit the model or the text.
        Cancelled: raised by ``report``.
        LayerMissing: the statistics are no longer in the store.
        StoreFailed: the result cannot be written.
    """
    from poskernel_core.passes.plan import locate_again, plan_header, random_source  # torch

    began, run, experiment = time.monotonic(), asked.run, asked.experiment
    assert experiment is not None
    report(0, 0, "Loading the model")
    located = locate_again(run)
    _check_cell(asked.params, located.geometry.reasons)
    tokenizer = shared.tokenizer(located)
    read = experiment.reads(run, asked.params)
    windows, plan = shared.prepare(read, execution, located, tokenizer)
    model = shared.models.take(located, execution.device)
    decode = tokenizer.decode_each if tokenizer else lambda ids: [str(each) for each in ids]
    words = decode(windows[0].tolist())
    source = random_source(run, located.geometry, tokenizer)
    subject = ExperimentContext(
        model,
        windows,
        words,
        decode,
        run.start_token,
        source,
        execution.batch,
        tokenizer.single_id if tokenizer else None,
        tokenizer.encode if tokenizer else None,
        plan.dealt,
    )
    views = open_views(shared.store, asked)
    result = experiment.perform(
        subject, views, asked.params, lambda done, total: report(done, total, experiment.title)
    )
    header = plan_header(plan, run, model.where)
    if experiment.draws:
        header = header.model_copy(update={"windows": run.windows})
    tokens = words if len(windows) == 1 and not experiment.draws else None
    keep(shared.store, asked, result, header, tokens, time.monotonic() - began)


def _check_cell(params: Any, reasons: Mapping[int, str]) -> None:
    """Check that the layer of the requested head has heads.

    Raises:
        BadRequest: the layer has no heads.
    """
    layer = layer_of(getattr(params, "head", ""))
    if layer in reasons:
        raise BadRequest(
            f"Layer {layer} has no heads: it is {reasons[layer]}; choose a head of another layer."
        )
