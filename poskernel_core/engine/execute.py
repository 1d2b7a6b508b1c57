"""Compute the result of a request: gather its statistics, then run the analysis or experiment.

This runs in the worker process of :mod:`poskernel_core.engine.engine`. Only the
functions that run a model import torch; analyses of stored statistics work without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from poskernel_core.analyses.base import Analysis, ExperimentContext, Progress
from poskernel_core.common.errors import BadRequest, StoreFailed, TooSmall
from poskernel_core.common.heads import layer_of
from poskernel_core.common.progress import Report
from poskernel_core.common.result import BEGINNINGS, Result
from poskernel_core.common.shards import WHOLE
from poskernel_core.common.specs import Execution, Gather, RunSpec
from poskernel_core.common.views import StatisticsView
from poskernel_core.data.beginnings import group_beginnings
from poskernel_core.engine.plan import Plan, gathering, plan_of
from poskernel_core.engine.provenance import keep, software
from poskernel_core.models import catalog
from poskernel_core.storage.shards import drop_left_over, partials_of
from poskernel_core.storage.statistics import (
    StoredStatistics,
    missing_statistics,
    read_checkpoint,
    windows_of,
)
from poskernel_core.storage.store import LayerMissing, Store

if TYPE_CHECKING:
    from poskernel_core.passes.forming import Stage
    from poskernel_core.passes.runner import OnStage
    from poskernel_core.passes.worker_context import WorkerContext

ATTEMPTS = 3
DROPPED = (
    "The statistics were dropped as soon as they were written: the store is too small for this run "
    "(POSKERNEL_CACHE_GB)."
)


def gather_missing(
    shared: WorkerContext,
    plan: Plan,
    execution: Execution,
    report: Report,
    others: Sequence[Plan] = (),
    on_stage: OnStage | None = None,
) -> None:
    """Gather the missing statistics of a request.

    If another process is reading the same windows, wait for it instead of repeating its work. The
    pass also gathers the statistics that the queued requests ``others`` need from these windows. An
    interrupted pass is finished first; statistics that it did not include follow in another pass,
    as do those of other requests if the store has no room for all of them.
    ``on_stage`` gets the statistics while they form.
    """
    from poskernel_core.passes.runner import gather_run  # torch

    store, wait = shared.store, "Waiting for another process at the same work"
    wanted = [run for planned in (plan, *others) for run in planned.needs.values()]
    for windows in dict.fromkeys(map(windows_of, plan.missing or ())):
        with store.lock(windows.digest(kind="lock"), partial(report, 0, 0, wait)):
            together = _of_windows(wanted, windows)
            missing = set(missing_statistics(store, gathering(windows, together)))
            while missing:
                begun = read_checkpoint(store, windows)
                read = set(begun[0]["gather"]) if begun else set()
                part = {g for g in missing if g in read or partials_of(store, windows, g, WHOLE)}
                part = part or missing
                made = gathering(windows, part)
                try:
                    gather_run(shared, made, execution, software(), report, on_stage)
                except TooSmall:
                    own = missing & _of_windows(plan.needs.values(), windows)
                    if own in (set(), missing):
                        raise
                    missing = own
                else:
                    missing = missing - part


def _of_windows(runs: Iterable[RunSpec], windows: RunSpec) -> set[Gather]:
    return {name for run in runs if windows_of(run) == windows for name in run.gather}


def form(store: Store, plan: Plan, stage: Stage, query: int) -> bool:
    """Answer a question from a stage of a pass, at one position; return whether that is possible.

    The answer is stored as that of the shorter run, or as the part of it that is at the position.
    """
    analysis, began = plan.question, time.monotonic()
    if not isinstance(analysis, Analysis) or query not in stage.sizes.positions:
        return False
    values = analysis.at_one_position(plan.params)
    if not values or not all(map(stage.covers, plan.needs.values())):
        return False
    made = plan.of_stage(stage.windows, query)
    if any(run.windows != stage.windows for run in made.needs.values()):
        return False  # a pass of the question's own, as long as its parameters say
    if not store.has(made.key):
        view = stage.at(query)
        views = dict.fromkeys(made.needs, view)
        result = _answer(made, views, lambda done, total: None)
        if len(values) < len(analysis.values):
            result = result.only(*values)
        seconds = time.monotonic() - began
        keep(store, made.key, made.run, result, stage.header, None, seconds)
    return True


def open_views(store: Store, plan: Plan) -> dict[str, StatisticsView]:
    """Return the statistics that a request needs, by role.

    Raises:
        LayerMissing: some are no longer in the store.
    """
    views: dict[str, StatisticsView] = {}
    for role, run in plan.needs.items():
        view = StoredStatistics.open(store, run)
        if view is None:
            raise LayerMissing(role)
        drop_left_over(store, run)
        views[role] = view
    return views


def compute(store: Store, plan: Plan, report: Report) -> None:
    """Run an analysis of statistics in the store and write its result.

    Raises:
        LayerMissing: the statistics are no longer in the store.
    """
    began, analysis = time.monotonic(), plan.question
    assert isinstance(analysis, Analysis)
    views = open_views(store, plan)
    _check_cell(plan.params, views["main"].header.reasons)
    result = _answer(
        plan, views, lambda done, total: report(done, total, f"Computing {analysis.title}")
    )
    header = views["main"].header
    tokens = views.get("queries", views["main"]).header.tokens or header.tokens
    keep(store, plan.key, plan.run, result, header, tokens, time.monotonic() - began)


def _answer(plan: Plan, views: Mapping[str, StatisticsView], progress: Progress) -> Result:
    """Answer an analysis; if it is about groups of texts, with what these begin with."""
    analysis = plan.question
    assert isinstance(analysis, Analysis)
    result = analysis.answer(views, plan.params, progress)
    if BEGINNINGS not in analysis.texts:
        return result
    texts = group_beginnings(plan.run, views["main"].header.windows)
    return result.with_text(BEGINNINGS, texts) if texts else result


def located(plan: Plan) -> Plan:
    """Return a plan with its model's fingerprint; this may ask the hub."""
    model = plan.run.model
    spec = catalog.locate(model.name, model.revision).spec
    run = plan.run.model_copy(update={"model": spec})
    return plan_of(plan.question, run, plan.params)


def perform(
    shared: WorkerContext,
    plan: Plan,
    execution: Execution,
    report: Report,
    formed: Callable[[int], None] = lambda done: None,
) -> None:
    """Run an experiment and write its result; the statistics it needs must be in the store.

    ``formed`` gets the number of steps after which a part of the result was stored.

    Raises:
        LayerMissing: the statistics are no longer in the store.
    """
    from poskernel_core.passes.prepare import header_of, locate_again, random_source  # torch

    began, run, experiment = time.monotonic(), plan.run, plan.experiment
    assert experiment is not None
    report(0, 0, "Loading the model")
    relocated = locate_again(run)
    _check_cell(plan.params, relocated.geometry.reasons)
    tokenizer = shared.tokenizer(relocated)
    read = experiment.reads(run, plan.params)
    windows, sizes = shared.prepare(read, execution, relocated, tokenizer)
    model = shared.models.take(relocated, execution.device)
    sizes = replace(sizes, geometry=model.geometry)
    decode = tokenizer.decode_each if tokenizer else lambda ids: [str(token_id) for token_id in ids]
    words = decode(windows[0].tolist())
    source = random_source(run, relocated.geometry, tokenizer)
    header = header_of(sizes, run, model.where)
    if experiment.draws:
        header = header.model_copy(update={"windows": run.windows})
    tokens = words if len(windows) == 1 and not experiment.draws else None

    def put(key: str, result: Result) -> None:
        keep(shared.store, key, run, result, header, tokens, time.monotonic() - began)

    def form(done: int, part: Result) -> None:
        put(plan.of_stage(done, 0).key, part)
        formed(done)

    begun = plan.of_stage(0, 0).key
    made = {"made": software() | {"device": header.device, "batch": execution.batch}}
    before = shared.store.get(begun)

    def save(arrays: dict[str, np.ndarray]) -> None:
        with suppress(StoreFailed):  # there may be room for the answer
            shared.store.put(begun, made, arrays)

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
        sizes.dealt,
        run.positions,
        run,
        form,
        save,
        before[1] if before is not None and before[0] == made else {},
    )
    views = open_views(shared.store, plan)
    report(0, 1, experiment.title)
    result = experiment.perform(
        subject, views, plan.params, lambda done, total: report(done, total, experiment.title)
    )
    put(plan.key, result)
    shared.store.drop(begun)


def _check_cell(params: Any, reasons: Mapping[int, str]) -> None:
    layer = layer_of(getattr(params, "head", ""))
    if layer in reasons:
        raise BadRequest(
            f"Layer {layer} has no heads: it is {reasons[layer]}; choose a head of another layer."
        )
