"""The engine: returns stored results, or has the worker process compute them.

Equal requests share one job: two clients that ask for the same result cause one computation, and
both see its progress. A job is cancelled when all its clients have cancelled it; a queued job is
also dropped when all its clients have left.
"""

import atexit
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cachetools import LRUCache

from poskernel_core.common.errors import BadRequest, ComputeFailed, NotInModel
from poskernel_core.common.folders import default_directory
from poskernel_core.common.result import Result
from poskernel_core.common.settings import settings
from poskernel_core.common.specs import (
    DEFAULT_CONTEXT,
    DEFAULT_TEXTS,
    AnyCorpus,
    AnyModel,
    CorpusSpec,
    Execution,
    RunSpec,
    ascending,
    brief,
    default_positions,
    whole,
)
from poskernel_core.data import corpora
from poskernel_core.engine.bounds import check_open, check_size
from poskernel_core.engine.counts import Counts
from poskernel_core.engine.execute import missing_runs
from poskernel_core.engine.job import Job
from poskernel_core.engine.preflight import check_request, check_worker
from poskernel_core.engine.provenance import NOT_KEPT, stored
from poskernel_core.engine.requests import Asked, CanonicalRequest, canonical
from poskernel_core.engine.worker_client import WorkerLink
from poskernel_core.models import catalog
from poskernel_core.models.fragments import refuse
from poskernel_core.storage.store import Store

JOBS_KEPT = 64
COMPOSITIONS_KEPT = 64
RECENT_BYTES = 64e6
"""Memory for results that were read lately: every page asks for some again at every click."""

GRACE_SECONDS = 10.0
"""Seconds that a queued job is kept after all its clients left (they may be reloading the page)."""

ABANDONED_SECONDS = 60.0
"""Seconds that a running job is kept after its clients left, if other jobs are queued. A cancelled
pass keeps its progress."""

LOOK_EVERY = 2.0


class Engine:
    """Finds results in the store or computes them; thread-safe.

    Args:
        store: where results are kept (default: a new one in the default directory).
        execution: device and batch, or only the device (default: ``POSKERNEL_DEVICE``, else auto).
        present: whether a client is still connected (default: always).
        person: the person behind a client (default: each client is a different person).

    Attributes:
        counts: counters of its work.

    A client is any text that identifies a session. Requests and cancellations belong to clients;
    turns and limits apply to the person behind them, who may have many sessions open. The unnamed
    client ``""`` is a local program: it is always present and has no limits.

    Raises:
        BadRequest: an invalid store or execution.
    """

    def __init__(
        self,
        store: Store | None = None,
        execution: Execution | str | None = None,
        present: Callable[[str], bool] | None = None,
        person: Callable[[str], str] | None = None,
    ) -> None:
        if store is not None and not isinstance(store, Store):
            raise BadRequest(f"Expected a Store as 'store', got {brief(store)}.")
        self.store = store or Store()
        self.execution = Execution.model_validate(execution or settings().device)
        self.counts = Counts()
        self._jobs: dict[str, Job] = {}  # the latest of each request
        self._numbers = itertools.count()
        self._compositions: LRUCache[tuple[str, ...], Result] = LRUCache(COMPOSITIONS_KEPT)
        self._recent: LRUCache[str, Result] = LRUCache(RECENT_BYTES, lambda each: each.nbytes)
        self._lock = threading.Lock()
        self._link: WorkerLink | None = None
        self._present = present or (lambda client: True)
        self._person = person or (lambda client: client)
        self._looking: threading.Thread | None = None
        self._closed = threading.Event()

    @property
    def log(self) -> Path:
        """The file that the worker writes its messages to."""
        return self.store.directory / "worker.log"

    def cached(self, request: Asked) -> Result | None:
        """Return a stored result, or None.

        Raises:
            BadRequest: the parameters do not fit the analysis or the run.
        """
        found = self._found(canonical(request))
        self.counts.looked(found is not None)
        return found

    def _found(self, asked: CanonicalRequest) -> Result | None:
        if asked.composition is not None:
            return self._composed(asked)
        with self._lock:
            kept = self._recent.get(asked.key)
        if kept is not None and self.store.has(asked.key):
            return kept
        found = stored(self.store, asked.key)
        if found is not None:
            with self._lock, suppress(ValueError):  # a single result may be too large
                self._recent[asked.key] = found
        return found

    def ready(self, request: Asked) -> bool:
        """Return whether a result is stored, or can be computed from the store without the model.

        Raises:
            BadRequest: the parameters do not fit the analysis or the run.
        """
        asked = canonical(request)
        return all(
            self.store.has(each.key)
            or (each.experiment is None and not missing_runs(self.store, each))
            for each in asked.parts().values() or [asked]
        )

    def missing(self, request: Asked) -> list[str]:
        """Return the names of the parts of a composition whose results are not in the store.

        Raises:
            BadRequest: the parameters do not fit the analysis or the run.
        """
        parts = canonical(request).parts()
        return [name for name, part in parts.items() if not self.store.has(part.key)]

    def _composed(self, asked: CanonicalRequest) -> Result | None:
        """Compose the stored results of a composition's parts; return None if one is missing.

        Cached under the keys of the parts.
        """
        parts = asked.parts()
        key = (asked.key, *(part.key for part in parts.values()))
        with self._lock:
            kept = self._compositions.get(key)
        if kept is not None:
            return kept
        if not all(self.store.has(part.key) for part in parts.values()):
            return None
        found = {name: stored(self.store, part.key) for name, part in parts.items()}
        whole = {name: each for name, each in found.items() if each is not None}
        if len(whole) < len(parts) or asked.composition is None:
            return None
        made = asked.composition.compose(whole, asked.run, asked.params)
        with self._lock:
            self._compositions[key] = made
        return made

    def submit(self, request: Asked, client: str = "") -> Job:
        """Return the open job of a request, or start a new one.

        Raises:
            BadRequest: the parameters do not fit the analysis, the run or the model.
            ComputeDisabled: this server is read-only, or torch is not installed.
            TooLarge: the request exceeds this server's size limits.
            Busy: this client's person, or all persons together, have too many jobs.
            ComputeFailed: the worker could not be started.
            NoSpace, ReadOnlyStore, StoreFailed: a result could not be stored.
        """
        asked = canonical(request)
        with self._lock:
            job = self._joined(asked.key, client)
        if job is not None:
            return job
        _check_parts(asked)
        check_worker()
        if client:
            check_size(self.store, asked, settings())
        for each in _first_to_compute(self.store, asked):
            check_request(self.store, each)
        with self._lock:
            job = self._joined(asked.key, client)
            if job is not None:
                return job
            person = self._person(client) if client else ""
            if client:
                check_open((job.clients for job in self._open()), person, settings())
            self.store.make_room(0)
            key = f"{asked.key}-{next(self._numbers)}"
            job = Job(key, asked, clients={client: person}, on_end=self.counts.ended)
            message = {
                "key": key,
                "request": asked.wire.model_dump(mode="json"),
                "execution": self.execution.model_dump(),
                "client": person,
            }
            self._send(message, job)
            self._jobs[asked.key] = job  # only now: starting the worker may have failed
            self._forget_old()
            self._look_after(client)
            return job

    def _joined(self, key: str, client: str) -> Job | None:
        """Return the open job of a key and add the client to it; None if there is none."""
        job = self._jobs.get(key)
        if job is None or job.ended or (job.cancelling and client not in job.clients):
            return None
        if client not in job.clients:
            person = self._person(client) if client else ""
            new = person not in job.clients.values()
            job.clients[client] = person
            job.missed_since = None
            if new and self._link is not None:
                self._link.send({"join": job.key, "client": person}, job)
        return job

    def _open(self) -> list[Job]:
        return [job for job in self._jobs.values() if not job.ended]

    def running(self, request: Asked) -> Job | None:
        """Return the latest job of a request, ended or not, or None.

        A job that ended because all clients had left is ignored, so that a returning client
        submits the request again.
        """
        job = self._jobs.get(canonical(request).key)
        return None if job is not None and job.ended and job.abandoned else job

    def result(
        self, request: Asked, seconds: float | int | None = None, client: str = ""
    ) -> Result | None:
        """Return a result, computing it if needed; None if that takes longer than ``seconds``.

        Raises:
            PosKernelError: the request or its computation failed.
        """
        asked = canonical(request)
        found = self.cached(asked)
        if found is not None:
            return found
        job = self.submit(asked, client)
        try:
            if not job.wait(seconds):
                return None
        except KeyboardInterrupt:
            self.cancel(asked, client)
            raise
        if job.error is not None:
            raise job.error
        found = self.cached(asked)
        if found is None:
            raise ComputeFailed(NOT_KEPT)
        return found

    def cancel(self, request: Asked, client: str = "") -> bool:
        """Withdraw a client's request; stop the job unless another present client waits for it.

        Returns whether the job is being stopped. A client that has not submitted the request, or
        has already cancelled it, stops nothing.
        """
        asked = canonical(request)
        with self._lock:
            job = self.running(asked)
            if job is None or job.ended or self._link is None or client not in job.clients:
                return False
            person = job.clients.pop(client)
            if any(self._present(other) for other in job.clients):
                if person not in job.clients.values():
                    self._link.send({"leave": job.key, "client": person}, job)
                return False
            job.cancelling, job.clients = True, {client: person}  # this client still sees it end
            self._link.send({"cancel": job.key}, job)
            return True

    def _look_after(self, client: str) -> None:
        """Start the thread that watches for clients that left; the unnamed client never leaves."""
        if client and self._looking is None:
            self._looking = threading.Thread(target=self._look, daemon=True)
            self._looking.start()

    def _look(self) -> None:
        while not self._closed.wait(LOOK_EVERY):
            with self._lock:
                self.drop_abandoned()

    def drop_abandoned(self) -> None:
        """Cancel jobs whose clients have all been gone for a while.

        A running job is kept longer than a queued one, and cancelled only if other jobs are queued.
        """
        now, jobs = time.monotonic(), [job for job in self._open() if not job.cancelling]
        missed = [job for job in jobs if job.missed_since is not None]
        for job in jobs:
            if any(map(self._present, job.clients)):
                job.missed_since = None
            elif job.missed_since is None:
                job.missed_since = now
        others = any(job.state == "queued" and job.missed_since is None for job in jobs)
        for job in missed:
            if job.missed_since is None or self._link is None:
                continue
            waits = job.state == "queued"
            due = now - job.missed_since >= (GRACE_SECONDS if waits else ABANDONED_SECONDS)
            if due and (waits or others):
                job.abandoned = True
                job.cancelling, job.clients = True, {}
                self._link.send({"cancel": job.key}, job)

    @property
    def worker_pid(self) -> int | None:
        """Process id of the worker, or None before it is started."""
        return None if self._link is None else self._link.pid

    @property
    def worker(self) -> str:
        """State of the worker process: ``none`` (not started yet), ``alive`` or ``ended``."""
        link = self._link
        if link is None:
            return "none"
        return "alive" if link.alive else "ended"

    def open_jobs(self) -> list[Job]:
        """Return the queued and running jobs."""
        with self._lock:
            return self._open()

    def close(self) -> None:
        """Stop the worker, and forget what was read."""
        self._closed.set()
        with self._lock:
            self._recent.clear()
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
            self.counts.started_worker()
        self._link.send(message, job)


_shared: dict[tuple[Path, float, str], Engine] = {}
_sharing = threading.Lock()


def engine_or_shared(engine: Engine | None) -> Engine:
    """Return the given engine, else this process's shared one.

    The shared engine is replaced when the environment names another store, store size or device.

    Raises:
        BadRequest: ``engine`` is not an Engine, or the store cannot be used.
    """
    if engine is not None:
        if not isinstance(engine, Engine):
            raise BadRequest(f"Expected an Engine as 'engine', got {brief(engine)}.")
        return engine
    told = settings()
    wanted = default_directory().absolute(), told.cache_gb, told.device
    with _sharing:
        if wanted not in _shared:
            made = Engine()
            close_shared()
            _shared[wanted] = made
        return _shared[wanted]


@atexit.register
def close_shared() -> None:
    """Close the shared engine of this process, if there is one."""
    while _shared:
        _shared.popitem()[1].close()


def _first_to_compute(store: Store, asked: CanonicalRequest) -> list[CanonicalRequest]:
    """Return the requests to check before starting (of a composition, its first missing part)."""
    if asked.composition is None:
        return [asked]
    return [part for part in asked.parts().values() if not store.has(part.key)][:1]


def _check_parts(asked: CanonicalRequest) -> None:
    """Check that the model has the position scheme and the parts that a question needs."""
    model, uses, scheme = asked.run.model, asked.question.uses, asked.question.scheme
    local = catalog.is_local(model.name)
    if uses and local:
        refuse(model.name, catalog.locate(model.name).config, uses)
    if scheme:
        located = catalog.locate(model.name, None if local else model.fingerprint)
        if located.geometry.scheme != scheme:
            raise NotInModel(
                f"{model.name!r} has {located.geometry.scheme} positions, and this is about "
                f"{scheme} ones: choose a model with {scheme} positions."
            )


def describe_run(
    model: AnyModel,
    *,
    revision: str | None = None,
    corpus: AnyCorpus | None = None,
    context: int | None = None,
    windows: int | None = None,
    query: int | None = None,
    positions: Iterable[int] | None = None,
    **more: Any,
) -> RunSpec:
    """Return the run for a model's name, with default settings and every fingerprint.

    For a model offered by its results, context and number of windows are by default those of the
    results. For other models they are the model's context, at most 1024, and the usual number of
    windows. ``query`` is recorded in addition to ``positions`` (default: 32 evenly spaced, and 400
    and 1000).

    Raises:
        InvalidField: an invalid field of the run or of a description.
        BadRequest: an unknown model or corpus, or a context or position beyond the model's limit.
    """
    located = catalog.locate(model, revision)
    longest, shown = located.geometry.n_ctx, located.shown
    usual = shown.context if shown else min(longest, DEFAULT_CONTEXT)
    length = usual if context is None else whole(context, "context")
    many = shown.windows if shown else DEFAULT_TEXTS
    if not 2 <= length <= longest:
        raise BadRequest(
            f"{located.spec.name!r} reads 2 to {longest} tokens; a context of {length!r} was asked "
            "for."
        )
    asked = () if positions is None else ascending(positions)
    asked += () if query is None else (whole(query, "query position"),)
    every = default_positions(length, *asked)
    run = RunSpec(
        model=located.spec,
        corpus=_text_of(located, corpus),
        context=length,
        windows=many if windows is None else windows,
        positions=every if positions is None else ascending(asked),
        **more,
    )
    if not located.away:
        corpora.check_ready_windows(run.corpus, length, cut=run.destination is not None)
    return run


def _text_of(located: catalog.Located, corpus: AnyCorpus | None) -> CorpusSpec:
    """Return the corpus of a run; of a model without weights here, it need not be installed."""
    kept = located.shown.corpus if located.away and located.shown else CorpusSpec()
    asked = kept if corpus is None else CorpusSpec.model_validate(corpus)
    if kept.fingerprint and (asked.name, asked.item) in ((kept.name, None), (kept.name, kept.item)):
        return kept
    return corpora.offered(asked)
