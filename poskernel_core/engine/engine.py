"""The engine: returns stored results, or has the worker process compute them.

Equal requests share one job: two clients that ask for the same result cause one computation, and
both see its progress. A composition's job consists of the jobs of its parts. A job is cancelled
when all its clients have cancelled it; a queued job is also dropped when all its clients have left.
"""

import atexit
import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from cachetools import LRUCache

from poskernel_core.common.errors import BadRequest, ComputeFailed
from poskernel_core.common.folders import default_directory
from poskernel_core.common.result import Result
from poskernel_core.common.settings import settings
from poskernel_core.common.specs import (
    DEFAULT_TEXTS,
    AnyCorpus,
    AnyModel,
    CorpusSpec,
    Execution,
    RunSpec,
    ascending,
    brief,
    whole,
)
from poskernel_core.data import corpora
from poskernel_core.engine.admission import check_open, check_plan
from poskernel_core.engine.counts import Counts
from poskernel_core.engine.job import BROKEN, ENDS, Client, Job
from poskernel_core.engine.plan import Asked, Plan, make_plan, to_compute
from poskernel_core.engine.process import Child, Event, Hear
from poskernel_core.engine.provenance import NOT_KEPT, stored
from poskernel_core.models import catalog
from poskernel_core.models.attached import attached
from poskernel_core.storage.statistics import StoredStatistics
from poskernel_core.storage.store import Store

JOBS_KEPT = 64
RECENT_BYTES = 64e6
"""Memory for results that were read lately: every page asks for some again at every click. They
are shown as long as they are there, even if the store has dropped them meanwhile."""

GRACE_SECONDS = 10.0
"""Seconds that a queued job is kept after all its clients left (they may be reloading the page)."""

ABANDONED_SECONDS = 60.0
"""Seconds that a running job is kept after its clients left, if other jobs are queued. A cancelled
pass keeps its progress."""

LOOK_EVERY = 2.0
WATCH_EVERY = 0.2


class Engine:
    """Finds results in the store or computes them; thread-safe.

    Args:
        store: where results are kept (default: a new one in the default directory).
        execution: device and batch, or only the device (default: ``POSKERNEL_DEVICE``, else auto).
        present: whether a client is still connected (default: always).
        person: the person behind a client (default: each client is a different person).
        start: starts what computes, given the store and who hears its events (default: the worker
            process).

    Attributes:
        counts: counters of its work.

    A client is any text that identifies a session. Requests and cancellations belong to clients;
    turns and limits apply to the person behind them, who may have many sessions open. The unnamed
    client ``""`` is a local program: it is always present and has no limits.

    Raises:
        BadRequest: an invalid store or execution. Methods that get a request raise it where the
            parameters do not fit the analysis or the run.
    """

    def __init__(
        self,
        store: Store | None = None,
        execution: Execution | str | None = None,
        present: Callable[[str], bool] | None = None,
        person: Callable[[str], str] | None = None,
        start: Callable[[Store, Hear], Any] | None = None,
    ) -> None:
        if store is not None and not isinstance(store, Store):
            raise BadRequest(f"Expected a Store as 'store', got {brief(store)}.")
        self.store = store or Store()
        self.execution = Execution.model_validate(execution or settings().device)
        self.counts = Counts()
        self._jobs: dict[str, Job] = {}  # the latest of each request
        self._numbers = itertools.count()
        self._recent: LRUCache[tuple[str, ...], Result] = LRUCache(
            RECENT_BYTES, attrgetter("nbytes")
        )
        self._lock = threading.RLock()
        self._start_child = start
        self._child: Any = None
        self._sent: dict[str, Job] = {}  # what the worker works on, by the job's key
        self._present = present or (lambda client: True)
        self._person = person or (lambda client: client)
        self._looking: threading.Thread | None = None
        self._closed = threading.Event()

    def cached(self, request: Asked) -> Result | None:
        """Return a stored result, or None."""
        plan = make_plan(request)
        key = plan.key, *plan.keys
        with self._lock:
            result = self._recent.get(key)
        if result is None:
            complete = all(map(self.store.has, plan.keys))
            result = self._read(plan) if complete or _may_lack(plan, self.missing(plan)) else None
            with self._lock, suppress(ValueError):  # a single result may be too large
                if result is not None and complete:
                    self._recent[key] = result
        self.counts.looked(result is not None)
        return result

    def _read(self, plan: Plan) -> Result | None:
        if plan.composition is None:
            return stored(self.store, plan.key)
        parts = {name: stored(self.store, part.key) for name, part in plan.parts.items()}
        results = {name: part for name, part in parts.items() if part is not None}
        there = len(results) == len(parts) or (
            results and _may_lack(plan, parts.keys() - results.keys())
        )
        return plan.composition.compose(results, plan.run, plan.params) if there else None

    def ready(self, request: Asked) -> bool:
        """Return whether a result is stored, or can be computed without the model."""
        plan = make_plan(request)
        return all(
            self.store.has(part.key)
            or (part.experiment is None and not part.looked_up(self.store).missing)
            for part in plan.parts.values() or [plan]
        )

    def by_groups(self, request: Asked) -> bool:
        """Return whether no stored pass of an analysis was kept without groups of texts."""
        stored_passes = (
            StoredStatistics.open(self.store, run) for run in make_plan(request).needs.values()
        )
        return all(one is None or one.header.groups > 0 for one in stored_passes)

    def missing(self, request: Asked) -> list[str]:
        """Return the names of the parts of a composition whose results are not in the store."""
        parts = make_plan(request).parts
        return [name for name, part in parts.items() if not self.store.has(part.key)]

    def submit(self, request: Asked, client: str = "", looks_at: int | None = None) -> Job:
        """Return the open job of a request, or start a new one.

        ``looks_at`` is the query position at which the client looks at the result while it forms:
        after the first windows, and again after more of them, a result of that run of fewer windows
        is stored (``Job.formed``, ``Plan.of_stage``).

        Raises:
            BadRequest: the parameters do not fit the analysis, the run or the model.
            ComputeDisabled: this server is read-only, or torch is not installed.
            TooLarge: the request exceeds this server's size limits.
            Busy: this client's person, or all persons together, have too many jobs.
            ComputeFailed: the worker could not be started.
            NoSpace, ReadOnlyStore, StoreFailed: a result could not be stored.
        """
        plan = make_plan(request)
        person = self._person(client) if client else ""
        with self._lock:
            job = self._joined(plan.key, client, person)
        if job is None:
            todo = to_compute(self.store, plan)
            check_plan(self.store, plan, todo, settings() if client else None)
        with self._lock:
            if job is None:
                job = self._joined(plan.key, client, person)
            if job is None:
                job = self._start(plan, todo, client, person)
            if looks_at is not None:
                self._tell({"look": job.key, "query": looks_at})
            return job

    def keep(self, request: Asked) -> bool:
        """Keep the statistics of a run's next stage (``Job.kept``); return whether a job runs."""
        with self._lock:
            job = self.running(request)
            if job is None or job.ended:
                return False
            job.refused = ""
            self._tell({"keep": job.key})
            return True

    def _start(self, plan: Plan, todo: Sequence[Plan], client: str, person: str) -> Job:
        if client:
            check_open((open_job.clients for open_job in self.open_jobs()), person, settings())
        self.store.make_room(0)
        job = self._new_job(plan if plan.composition else todo[0], client, person)
        if plan.composition is not None:
            part_client = client, job.key
            job.parts = [
                self._joined(part.key, part_client, person)
                or self._new_job(part, part_client, person)
                for part in todo
            ]
            if not todo:  # meanwhile somebody else has computed them
                job.take({"state": "done"})
                return job
        new = [
            job_part
            for job_part in job.parts or [job]
            if self._jobs.get(job_part.plan.key) is not job_part
        ]
        for part in job.parts:
            part.on_event.append(partial(self._of_part, job))
        self._send(new, person)
        self._jobs |= {new_job.plan.key: new_job for new_job in (*new, job)}
        for part in job.parts:
            if part.state in ENDS:
                self._of_part(job, part)
        ended = [key for key, known_job in self._jobs.items() if known_job.ended]
        for key in ended[: max(0, len(self._jobs) - JOBS_KEPT)]:
            del self._jobs[key]
        if client and self._looking is None:  # the unnamed client never leaves
            self._looking = threading.Thread(target=self._look, daemon=True)
            self._looking.start()
        return job

    def _new_job(self, plan: Plan, client: Client, person: str) -> Job:
        before, key = self._jobs.get(plan.key), f"{plan.key}-{next(self._numbers)}"
        formed = before.formed if before is not None else 0
        clients, on_end = {client: person}, self.counts.ended
        return Job(key, plan, formed=formed, clients=clients, on_end=on_end)

    def _of_part(self, job: Job, part: Job) -> None:
        if job.ended:
            return
        left = [sibling for sibling in job.parts if sibling.state != "done"]
        total = len(job.plan.parts)
        if part.error is not None:
            job.abandoned = part.abandoned
            failure = {"error": type(part.error).__name__, "message": str(part.error)}
            job.take({"state": part.state, **failure})
            threading.Thread(target=self._withdraw, args=(job,)).start()  # not while it listens
        elif left:
            note = {"done": total - len(left), "total": total, "note": "Parts done"}
            job.take({"state": "running", **note})
        elif self.missing(job.plan.again()):
            lost = {"error": ComputeFailed.__name__, "message": NOT_KEPT}
            job.take({"state": "error", **lost})
        else:
            job.take({"state": "done"})

    def _withdraw(self, job: Job) -> None:
        with self._lock:
            for part in job.parts:
                for client in [
                    part_client for part_client in part.clients if part_client[1:] == (job.key,)
                ]:
                    self._leave(part, client)

    def _joined(self, key: str, client: Client, person: str) -> Job | None:
        """Return the open job of a key and add the client to it; None if there is none."""
        job = self._jobs.get(key)
        if job is None or job.ended or (job.cancelling and client not in job.clients):
            return None
        if client not in job.clients:
            new = person not in job.clients.values()
            job.clients[client] = person
            job.missed_since = None
            for part in job.parts:
                self._joined(part.plan.key, (str(client), job.key), person)
            if new and not job.parts:
                self._tell({"join": job.key, "client": person})
        return job

    def running(self, request: Asked) -> Job | None:
        """Return the latest job of a request, ended or not, or None.

        A job that ended because all clients had left is ignored, so that a returning client
        submits the request again.
        """
        job = self._jobs.get(make_plan(request).key)
        return None if job is not None and job.ended and job.abandoned else job

    def result(self, request: Asked, seconds: float | int | None = None) -> Result | None:
        """Return a result, computing it if needed; None if that takes longer than ``seconds``.

        Raises:
            PosKernelError: the request or its computation failed.
        """
        plan = make_plan(request)
        result = self.cached(plan)
        if result is not None:
            return result
        job = self.submit(plan)
        try:
            if not job.wait(seconds):
                return None
        except KeyboardInterrupt:
            self.cancel(plan)
            raise
        if job.error is not None:
            raise job.error
        result = self.cached(plan.again())
        if result is None:
            raise ComputeFailed(NOT_KEPT)
        return result

    def watch(
        self, request: Asked, query: int | None, tell: Callable[[Job], None] = lambda job: None
    ) -> Iterator[Result]:
        """Yield what a result is at a query position after more and more windows, then the result.

        ``tell`` is called a few times a second with the job. Whoever stops listening cancels it.

        Raises:
            PosKernelError: the request or its computation failed.
        """
        plan, ended = make_plan(request), False
        if self.cached(plan) is None:
            job = self.submit(plan, looks_at=query)
            stages, seen = [0], {0}
            job.on_event.append(listen := lambda job: stages.append(job.formed))
            try:
                listen(job)  # what has formed until now
                while not ended:
                    ended = job.wait(WATCH_EVERY)
                    tell(job)
                    for windows in sorted({*stages} - seen):
                        seen.add(windows)
                        if query is None:  # another client looks at it while it forms
                            continue
                        if (so_far := self.cached(plan.of_stage(windows, query))) is not None:
                            yield so_far
            except BaseException:  # also what ``tell`` raises
                self.cancel(plan)
                job.wait(5)
                raise
            finally:
                job.on_event.remove(listen)
            if job.error is not None:
                raise job.error
        result = self.result(plan)
        assert result is not None  # no time limit was set
        yield result

    def cancel(self, request: Asked, client: str = "") -> bool:
        """Withdraw a client's request; stop the job unless another present client waits for it.

        Returns whether the job is being stopped. A client that has not submitted the request, or
        has already cancelled it, stops nothing.
        """
        plan = make_plan(request)
        with self._lock:
            job = self.running(plan)
            return job is not None and self._leave(job, client)

    def _leave(self, job: Job, client: Client) -> bool:
        if job.state in ENDS or client not in job.clients:
            return False
        person = job.clients.pop(client)
        if not any(map(self._is_present, job.clients)):
            job.clients = {client: person}  # this client still sees it end
            self._stop(job)
            return True
        for part in job.parts:
            self._leave(part, (str(client), job.key))
        if person not in job.clients.values() and not job.parts:
            self._tell({"leave": job.key, "client": person})
        return False

    def _stop(self, job: Job) -> None:
        job.cancelling = True
        if job.parts:
            self._withdraw(job)
            job.take({"state": "cancelled"})
        else:
            self._tell({"cancel": job.key})

    def _is_present(self, client: Client) -> bool:
        return self._present(client if isinstance(client, str) else client[0])

    def _look(self) -> None:
        while not self._closed.wait(LOOK_EVERY):
            with self._lock:
                self.drop_abandoned()

    def drop_abandoned(self) -> None:
        """Cancel jobs whose clients have all been gone for a while.

        A running job is kept longer than a queued one, and cancelled only if other jobs are queued.
        """
        now, jobs = time.monotonic(), [job for job in self.open_jobs() if not job.cancelling]
        missed = [job for job in jobs if job.missed_since is not None]
        for job in jobs:
            if any(map(self._is_present, job.clients)):
                job.missed_since = None
            elif job.missed_since is None:
                job.missed_since = now
        others = any(job.state == "queued" and job.missed_since is None for job in jobs)
        for job in missed:
            if job.missed_since is None:
                continue
            waits = job.state == "queued"
            due = now - job.missed_since >= (GRACE_SECONDS if waits else ABANDONED_SECONDS)
            if due and (waits or others):
                job.abandoned, job.clients = True, {}
                self._stop(job)

    @property
    def worker_pid(self) -> int | None:
        """Process id of the worker, or None before it is started."""
        return None if self._child is None else self._child.pid

    @property
    def worker(self) -> str:
        """State of the worker process: ``none`` (not started yet), ``alive`` or ``ended``."""
        child = self._child
        return "none" if child is None else "alive" if child.alive else "ended"

    def open_jobs(self) -> list[Job]:
        """Return the queued and running jobs."""
        with self._lock:
            return [job for job in self._jobs.values() if not job.ended]

    def close(self) -> None:
        """Stop the worker, and forget what was read."""
        self._closed.set()
        with self._lock:
            self._recent.clear()
            child, self._child = self._child, None
        if child is not None:
            child.close()

    def _send(self, jobs: Sequence[Job], person: str) -> None:
        if self._child is None or not self._child.alive:
            if self._child is not None:
                self._child.close()
            self._sent = {}
            hear = partial(self._hear, self._sent)
            self._child = (self._start_child or partial(Child, "worker"))(self.store, hear)
            self.counts.worker_starts += 1
        self._sent.update({job.key: job for job in jobs})
        more = {"execution": self.execution.model_dump(), "client": person}
        tasks = [{"key": job.key, "plan": job.plan.as_json(), **more} for job in jobs]
        if not self._tell({"tasks": tasks}):
            for job in jobs:
                job.take(BROKEN)

    def _tell(self, message: Event) -> bool:
        """Send a message to the worker; return False if it is gone, which its jobs hear as well."""
        return self._child is not None and self._child.tell(message)

    @staticmethod
    def _hear(sent: dict[str, Job], event: Event | None) -> None:
        """Apply an event to its job; the end of the process is an error of all open jobs."""
        for key in [*sent] if event is None else [event["key"]]:
            if (job := sent.get(key)) is not None:
                job.take(event or BROKEN)
                if job.ended:
                    sent.pop(key, None)


_shared: dict[tuple[Path, float, str], Engine] = {}
_sharing = threading.Lock()


def _may_lack(plan: Plan, names: Collection[str]) -> bool:
    """Return whether a combination does without parts: all on request, without their weights."""
    return (
        bool(names)
        and plan.composition is not None
        and plan.composition.can_lack_parts
        and all(
            part.question.on_request
            and catalog.is_local(model := part.run.model.name)
            and not attached(model)
            and catalog.locate(model).away
            for part in map(plan.parts.__getitem__, names)
        )
    )


def engine_or_shared(engine: Engine | None) -> Engine:
    """Return the given engine, else this process's shared one.

    The shared engine is replaced when the environment names another store, store size or device.
    """
    if engine is not None:
        if not isinstance(engine, Engine):
            raise BadRequest(f"Expected an Engine as 'engine', got {brief(engine)}.")
        return engine
    current = settings()
    wanted = default_directory().absolute(), current.cache_gb, current.device
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


def describe_run(
    model: AnyModel | catalog.Located,
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

    A model that was located is not looked for again. For a model offered by its results, context
    and number of windows are by default those of the results. For other models they are the model's
    context, at most 1024 (fewer for wide models), and the usual number of windows. ``query`` is
    recorded in addition to ``positions`` (default: 32 evenly spaced, and 400 and 1000; fewer where
    the widest models have no room).

    Raises:
        InvalidField: an invalid field of the run or of a description.
        BadRequest: an unknown model or corpus, or a context or position beyond the model's limit.
    """
    located = model if isinstance(model, catalog.Located) else catalog.locate(model, revision)
    longest, default_run = located.geometry.n_ctx, located.shown
    usual = default_run.context if default_run else located.geometry.usual_context
    length = usual if context is None else whole(context, "context")
    many = default_run.windows if default_run else DEFAULT_TEXTS
    if not 2 <= length <= longest:
        raise BadRequest(
            f"{located.spec.name!r} reads 2 to {longest} tokens; a context of {length!r} was asked "
            "for."
        )
    requested = () if positions is None else ascending(positions)
    requested += () if query is None else (whole(query, "query position"),)
    every = located.usual_positions(length, *requested)
    if located.away and default_run:
        more = {"start_token": default_run.start_token, "dtype": default_run.dtype} | more
        if not default_run.start_token:  # and no texts, which would need one
            more, corpus = more | {"start_token": False}, None
    run = RunSpec(
        model=located.spec,
        corpus=_text_of(located, corpus),
        context=length,
        windows=many if windows is None else windows,
        positions=every if positions is None else ascending(requested),
        **more,
    )
    if not located.away:
        corpora.check_ready_windows(run.corpus, length, cut=run.destination is not None)
    return run


def _text_of(located: catalog.Located, corpus: AnyCorpus | None) -> CorpusSpec:
    """Return the corpus of a run; of a model without weights here, it need not be installed."""
    kept = located.shown.corpus if located.away and located.shown else CorpusSpec()
    requested = kept if corpus is None else CorpusSpec.model_validate(corpus)
    if kept.fingerprint and (requested.name, requested.item) in (
        (kept.name, None),
        (kept.name, kept.item),
    ):
        return kept
    return corpora.offered(requested)
