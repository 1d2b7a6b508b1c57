"""«This result, please»: cached, under way already, or computed once in the worker process.

``submit(request) -> Job`` is all that pages and the command line use. Equal requests share one
job: two visitors asking for one thing cause one computation, and both see its progress.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poskernel_core import analyses, catalog, corpora
from poskernel_core.analyses.base import Result
from poskernel_core.compute import canonical, from_entry, needs
from poskernel_core.config import (
    DEFAULT_TEXTS,
    CorpusSpec,
    Execution,
    Request,
    RunSpec,
    default_positions,
)
from poskernel_core.errors import BadRequest, ComputeFailed
from poskernel_core.fragments import refuse
from poskernel_core.job import Job
from poskernel_core.link import WorkerLink
from poskernel_core.store import Store

__all__ = ["Engine", "describe_run"]

DEFAULT_CONTEXT = 1024
JOBS_KEPT = 64
MOST_WAITING = 48


def default_execution() -> Execution:
    """Return how runs are carried out unless told otherwise (``POSKERNEL_DEVICE``, else auto)."""
    return Execution(device=os.environ.get("POSKERNEL_DEVICE", "auto"))


class Engine:
    """Finds results in the store, or has them computed; safe to share between threads."""

    def __init__(self, store: Store | None = None, execution: Execution | None = None) -> None:
        self.store = store or Store()
        self.execution = execution or default_execution()
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._link: WorkerLink | None = None

    @property
    def log(self) -> Path:
        """Where the worker's messages go."""
        return self.store.directory / "worker.log"

    def cached(self, request: Request) -> Result | None:
        """Return a result that is in the store, or None."""
        found = self.store.get(canonical(request).key)
        return None if found is None else from_entry(found)

    def submit(self, request: Request) -> Job:
        """Return the job of a request: one that is under way, or a new one.

        Raises:
            BadRequest: the parameters do not fit the analysis, the run or the model.
        """
        request = canonical(request)
        needs(request)
        _check_parts(request)
        with self._lock:
            job = self._jobs.get(request.key)
            if job is not None and not job.ended:
                return job
            waiting = sum(not other.ended for other in self._jobs.values())
            if waiting >= MOST_WAITING:
                raise BadRequest(
                    f"{waiting} computations are waiting already: ask again in a moment."
                )
            job = self._jobs[request.key] = Job(request.key, request)
            self._forget_old()
            execution = self.execution.model_dump()
            self._send({"request": request.model_dump(mode="json"), "execution": execution}, job)
            return job

    def running(self, request: Request) -> Job | None:
        """Return the latest job of a request, ended or not, or None."""
        return self._jobs.get(canonical(request).key)

    def result(self, request: Request, seconds: float | int | None = None) -> Result | None:
        """Return a result, computing it at need; None if that takes longer than ``seconds``.

        Raises:
            PosKernelError: what went wrong.
        """
        found = self.cached(request)
        if found is not None:
            return found
        job = self.submit(request)
        if not job.wait(seconds):
            return None
        if job.error is not None:
            raise job.error
        found = self.cached(request)
        if found is None:
            raise ComputeFailed(
                "The result was dropped as soon as it was written: the store is too small "
                "(POSKERNEL_CACHE_GB)."
            )
        return found

    def cancel(self, request: Request) -> None:
        """Ask the worker to stop working on a request; for everybody who waits for it."""
        with self._lock:
            job = self.running(request)
            if job is not None and not job.ended and self._link is not None:
                self._link.send({"cancel": job.key}, job)

    @property
    def worker_pid(self) -> int | None:
        """Number of the worker process, or None while there is none."""
        return None if self._link is None else self._link.pid

    def close(self) -> None:
        """Stop the worker."""
        with self._lock:
            link, self._link = self._link, None
        if link is not None:
            link.close()

    def _forget_old(self) -> None:
        ended = [key for key, job in self._jobs.items() if job.ended]
        for key in ended[: max(0, len(self._jobs) - JOBS_KEPT)]:
            del self._jobs[key]

    def _send(self, message: Mapping[str, Any], job: Job) -> None:
        if self._link is None or not self._link.alive:
            if self._link is not None:
                self._link.close()
            self._link = WorkerLink(self.store.directory.resolve(), self.log)
        self._link.send(message, job)


def _check_parts(request: Request) -> None:
    """Refuse a question that a part of a model cannot answer."""
    model, uses = request.run.model, analyses.find(request.analysis).uses
    if uses and catalog.is_local(model.name):
        refuse(model.name, catalog.locate(model.name).config, uses)


def describe_run(
    model: str,
    *,
    revision: str | None = None,
    corpus: CorpusSpec | None = None,
    context: int | None = None,
    windows: int | None = None,
    query: int | None = None,
    **more: Any,
) -> RunSpec:
    """Return the run for a model's name, with the project's defaults and every fingerprint.

    The context defaults to the model's, up to 1024; ``query`` is recorded besides the default
    positions.

    Raises:
        BadRequest: an unknown model or corpus, or a context or position outside the model.
    """
    located = catalog.locate(model, revision)
    longest = located.geometry.n_ctx
    length = min(longest, DEFAULT_CONTEXT) if context is None else context
    if not 2 <= length <= longest:
        raise BadRequest(
            f"{model!r} reads 2 to {longest} tokens; a context of {length} was asked for."
        )
    also = () if query is None else (query,)
    return RunSpec(
        model=located.spec,
        corpus=corpora.resolve(corpus or CorpusSpec()),
        context=length,
        windows=windows or DEFAULT_TEXTS,
        positions=default_positions(length, *also),
        **more,
    )
