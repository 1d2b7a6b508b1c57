"""From a request to its result in the store: statistics first, then the analysis.

It runs in the worker process; :mod:`poskernel_core.engine` is the other side.
"""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import numpy as np
from pydantic import ValidationError

from poskernel_core import analyses, corpora
from poskernel_core.analyses.base import Analysis, Experiment, Params, Result
from poskernel_core.config import SCHEMA, Execution, Request, RunSpec
from poskernel_core.errors import BadRequest
from poskernel_core.progress import Report
from poskernel_core.statistics_store import LayerMissing, StoredStatistics
from poskernel_core.store import Entry, Store
from poskernel_core.views import StatisticsView

__all__ = [
    "canonical",
    "check_params",
    "compute",
    "experiment_of",
    "from_entry",
    "keep",
    "missing_runs",
    "needs",
    "open_views",
    "to_entry",
    "versions",
]

PACKAGES = (
    "torch", "transformers", "transformer_lens", "numpy", "scipy", "scikit-learn", "datasets",
)  # fmt: skip


def check_params(request: Request) -> Params:
    """Return the request's parameters, checked.

    Raises:
        UnknownAnalysis: no such analysis.
        BadRequest: a parameter that the analysis does not take, or of a wrong value.
    """
    analysis = analyses.find(request.analysis)
    try:
        return analysis.params(**request.params)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "parameters"
        if first["type"] == "missing":
            raise BadRequest(
                f"{request.analysis!r} needs {place!r}, and it is not given (--{place})."
            ) from error
        raise BadRequest(
            f"Parameter {place!r} of {request.analysis!r}: {first['msg'].lower()}, got "
            f"{str(first.get('input'))[:80]!r}."
        ) from error


def canonical(request: Request) -> Request:
    """Return the request with every parameter spelt out, so that equal requests have one key.

    What the result does not depend on is taken out of the run.

    Raises:
        BadRequest: a parameter that the analysis does not take, or of a wrong value.
    """
    params = check_params(request)
    run = _resolved(analyses.find(request.analysis).settled(request.run, params))
    return request.model_copy(update={"params": params.model_dump(), "run": run})


def experiment_of(request: Request) -> Experiment | None:
    """Return the experiment that answers a request, or None where statistics do."""
    found = analyses.find(request.analysis)
    return found if isinstance(found, Experiment) else None


def needs(request: Request) -> Mapping[str, RunSpec]:
    """Return the runs that a canonical request stands on, every fingerprint filled in."""
    runs = analyses.find(request.analysis).needs(request.run, check_params(request))
    return {role: _resolved(run) for role, run in runs.items()}


def _resolved(run: RunSpec) -> RunSpec:
    if run.corpus.fingerprint:
        return run
    return run.model_copy(update={"corpus": corpora.resolve(run.corpus)})


def missing_runs(store: Store, runs: Mapping[str, RunSpec]) -> list[RunSpec]:
    """Return the runs whose statistics are not, or no longer whole, in the store."""
    return [run for run in runs.values() if StoredStatistics.open(store, run) is None]


def gather_missing(
    workshop: Any, store: Store, runs: Mapping[str, RunSpec], execution: Execution, report: Report
) -> None:
    """Gather what is missing; another process at the same run is waited for, not repeated.

    Raises:
        BadRequest, Cancelled, ComputeFailed, StoreFailed: as ``gather.gather_run``.
    """
    from poskernel_core.gather import gather_run  # torch

    def wait() -> None:
        report(0, 0, "Waiting for another process at the same work")

    for run in missing_runs(store, runs):
        with store.lock(run.digest(kind="lock"), wait):
            if StoredStatistics.open(store, run) is None:
                gather_run(workshop, run, execution, report)


def open_views(store: Store, request: Request) -> dict[str, StatisticsView]:
    """Return the statistics that a request stands on, by role.

    Raises:
        LayerMissing: some are no longer in the store.
    """
    views: dict[str, StatisticsView] = {}
    for role, run in needs(request).items():
        view = StoredStatistics.open(store, run)
        if view is None:
            raise LayerMissing(role)
        views[role] = view
    return views


def compute(store: Store, request: Request, report: Report) -> None:
    """Compute a request whose statistics are in the store, and write its result.

    Raises:
        BadRequest: the parameters do not fit the run.
        Cancelled: raised by ``report``.
    """
    began = time.monotonic()
    analysis, params = analyses.find(request.analysis), check_params(request)
    assert isinstance(analysis, Analysis)
    views = open_views(store, request)
    result = analysis.compute(
        views, params, lambda done, total: report(done, total, f"Computing {analysis.title}")
    )
    header = views["main"].header | {
        key: value
        for key, value in views.get("queries", views["main"]).header.items()
        if key == "tokens"
    }
    keep(store, request, result, header, time.monotonic() - began)


def keep(
    store: Store, request: Request, result: Result, header: dict[str, Any], seconds: float
) -> None:
    """Write a result under its request's key, with its provenance."""
    made = provenance(request.run, header, seconds) | result.provenance
    if "tokens" in header:
        made["tokens"] = header["tokens"]
    store.put(request.key, *to_entry(replace(result, provenance=made)))


def provenance(run: RunSpec, header: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return all that a reader needs to compute the same numbers again."""
    return {
        "model": run.model.name,
        "revision": run.model.revision,
        "model_fingerprint": run.model.fingerprint,
        "architecture": header["architecture"],
        "position_scheme": header["scheme"],
        "corpus": run.corpus.name,
        "corpus_item": run.corpus.item,
        "corpus_revision": run.corpus.revision,
        "corpus_fingerprint": run.corpus.fingerprint,
        "context": header["context"],
        "windows": header["windows"],
        "windows_asked": run.windows,
        "samples": header["samples"],
        "start_token": run.start_token,
        "seed": run.seed,
        "positions": header["positions"],
        "sliding_windows": header.get("sliding_windows"),
        "score_scales": header.get("scales"),
        "dtype": run.dtype,
        "dtype_error": header.get("dtype_error", 0.0),
        "device": header["device"],
        "pass_seconds": header.get("seconds", 0.0),
        "analysis_seconds": round(seconds, 3),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
    }


@cache
def versions() -> dict[str, str]:
    """Return the versions of everything that the numbers depend on."""
    found = {"schema": str(SCHEMA), "python": platform.python_version()}
    for package in PACKAGES:
        found[package] = importlib.metadata.version(package)
    return found


def to_entry(result: Result) -> Entry:
    """Return a result as header and arrays."""
    header = {
        "analysis": result.analysis,
        "params": result.params,
        "axes": result.axes,
        "units": result.units,
        "labels": result.labels,
        "provenance": result.provenance,
    }
    parts = {"values": result.values, "errors": result.errors, "coordinates": result.coordinates}
    arrays = {f"{part}/{name}": a for part, named in parts.items() for name, a in named.items()}
    return header, arrays


def from_entry(entry: Entry) -> Result | None:
    """Return the result of header and arrays; None where they are of another layout."""
    try:
        return _from_entry(*entry)
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def _from_entry(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Result:
    parts: dict[str, dict[str, Any]] = {"values": {}, "errors": {}, "coordinates": {}}
    for path, array in arrays.items():
        part, name = path.split("/", 1)
        parts[part][name] = array
    return Result(
        analysis=header["analysis"],
        params=header["params"],
        axes={name: tuple(axes) for name, axes in header["axes"].items()},
        units=header["units"],
        labels={name: tuple(words) for name, words in header["labels"].items()},
        provenance=header["provenance"],
        **parts,
    )
