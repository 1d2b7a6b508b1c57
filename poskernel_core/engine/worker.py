"""The worker process: ``python -m poskernel_core.engine.worker CACHE_DIRECTORY``.

It reads messages as JSON lines from standard input and writes events as JSON lines to standard
output; arrays go through the store, never through the pipe. One thread does all that runs a model;
between two batches of a pass it does the short experiments that wait. Other threads do the
arithmetic on stored sums, so that a click on a head never waits for a pass. Clients take turns. A
task that fails reports its error and never stops its thread.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from io import TextIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poskernel_core.common import heap
from poskernel_core.common.errors import Cancelled, ComputeFailed, PosKernelError
from poskernel_core.common.progress import Report
from poskernel_core.common.specs import Execution
from poskernel_core.engine import execute
from poskernel_core.engine.plan import Plan, missing_passes
from poskernel_core.engine.process import Event, events_only, reporter, say
from poskernel_core.engine.queue import FairQueue
from poskernel_core.engine.targets import is_met
from poskernel_core.storage.statistics import LayerMissing, windows_of
from poskernel_core.storage.store import Store

if TYPE_CHECKING:
    from poskernel_core.passes.forming import Stage

TIDY_AFTER = 5.0
"""Seconds after a step until its freed memory is returned to the system."""

LOOKS = 3
"""Most query positions at which a result forms."""

SHARE = 0.025
"""Most of a pass' time that results which form on the way may take, after the first ones."""

ARITHMETIC = 2
"""Threads for the arithmetic on stored sums."""


@dataclass(eq=False)
class Task:
    """A plan in progress, under its job's key.

    Attributes:
        looked_at: the query positions at which somebody looks at the result while it forms.
        keep: whether somebody wants the statistics of the next stage.
    """

    key: str
    plan: Plan
    execution: Execution
    clients: list[str] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)
    waiting: bool = True
    ended: bool = False
    attempts: int = 0
    looked_at: list[int] = field(default_factory=list)
    keep: bool = False

    @property
    def short(self) -> bool:
        """Whether it is an experiment of a few seconds, which may run within a pass."""
        experiment = self.plan.experiment
        return experiment is not None and not experiment.long and not self.plan.missing


class Budget:
    """What the pictures of a pass may cost: a share of the time that the whole pass will take."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._spent = self._last = 0.0

    def allows(self, stage: Stage) -> bool:
        """Return whether one more picture fits in; the first always does."""
        expected = (time.monotonic() - self._began) * stage.of / stage.windows
        return not self._last or self._spent + self._last <= SHARE * expected

    def spend(self, seconds: float) -> None:
        """Count what a picture took."""
        self._last = seconds
        self._spent += seconds


class Worker:
    """Reads messages, puts their tasks into the queues and reports events."""

    def __init__(self, store: Store, output: TextIOBase) -> None:
        self._store = store
        self._output = output
        self._choosing = threading.Lock()
        self._tasks: dict[str, Task] = {}
        self._models, self._sums = self._queues = FairQueue[Task](), FairQueue[Task]()
        self._context: Any = None
        self._stepped = threading.Event()

    def serve(self, lines: Iterable[str]) -> None:
        """Work until the input ends, which means that the parent process is gone."""
        for queue in (self._models, *[self._sums] * ARITHMETIC):
            threading.Thread(target=self._work, args=(queue,), daemon=True).start()
        threading.Thread(target=self._tidy, daemon=True).start()
        for line in lines:
            message = json.loads(line)
            if "cancel" in message:
                self._cancel(message["cancel"])
            elif "join" in message:
                self._join(message["join"], message["client"])
            elif "leave" in message:
                self._leave(message["leave"], message["client"])
            elif "keep" in message:
                self._keep(message["keep"])
            elif "look" in message:
                self._look(message["look"], message["query"])
            else:
                self._take(message["tasks"])

    def _take(self, messages: Iterable[dict[str, Any]]) -> None:
        """Queue tasks that were sent together, so that they can share a pass."""
        with self._models.held():
            for each in messages:
                try:
                    plan = Plan.read(each["plan"])
                    execution = Execution.model_validate(each["execution"])
                    task = Task(each["key"], plan, execution, [each.get("client", "")])
                    task.looked_at += each.get("looked_at", ())
                except Exception as error:
                    self._say(each["key"], _failure(error))
                    continue
                self._tasks[task.key] = task
                self._put(task)

    def _put(self, task: Task) -> None:
        """Queue a task, unless it was cancelled since its last report.

        Raises:
            Cancelled: it was.
        """
        with self._choosing:
            if task.cancelled.is_set():
                raise Cancelled("Cancelled.")
            runs = task.plan.missing or task.plan.experiment
            (self._models if runs else self._sums).put(task, *task.clients)
            task.waiting = True

    def _work(self, queue: FairQueue[Task]) -> None:
        while True:
            self._attempt(queue.get())
            self._stepped.set()

    def _tidy(self) -> None:
        """Return free memory to the system a few seconds after a step, even within a long task."""
        while True:
            self._stepped.wait()
            time.sleep(TIDY_AFTER)
            self._stepped.clear()
            heap.give_back()

    def _attempt(self, task: Task) -> None:
        """Do one step of a task; report how the task ended, unless it continues."""
        with self._choosing:
            if task.ended:
                return
            task.waiting = False
        try:
            if task.cancelled.is_set():
                raise Cancelled("Cancelled.")
            if not self._step(task):
                return
            ending: dict[str, Any] = {"state": "done"}
        except BaseException as error:  # keep the thread alive, even if the log is not writable
            ending = _failure(error)
        self._end(task, ending)

    def _step(self, task: Task) -> bool:
        """Compute a task, or gather what it needs; return whether it is done."""
        plan, report = task.plan, self._reporter(task)
        try:
            if not plan.missing and plan.experiment is None:
                execute.compute(self._store, plan, report)
                return True
            shared = self._start(report)
            if not task.short:
                report = self._yielding(report)
            if not plan.run.model.fingerprint:
                plan = execute.located(plan).looked_up(self._store)
            if plan.missing:
                waiting = self._models.waiting()
                others = [each.plan for each in waiting if each.execution == task.execution]
                on_stage = partial(self._on_stage, task, Budget())
                execute.gather_missing(shared, plan, task.execution, report, others, on_stage)
                self._release(plan)
            task.plan = replace(plan, missing=())
            if plan.experiment is not None:
                execute.perform(shared, task.plan, task.execution, report)
                return True
        except LayerMissing as error:  # another process may have evicted them meanwhile
            task.attempts += 1
            if task.attempts == execute.ATTEMPTS:
                raise ComputeFailed(execute.DROPPED) from error
            missing = missing_passes(self._store, plan.needs.values())
            task.plan = replace(plan, missing=tuple(missing))
        self._put(task)
        return False

    def _release(self, gathered: Plan) -> None:
        """Hand on the waiting analyses that a pass has gathered everything for."""
        passes = set(map(windows_of, gathered.missing or ()))
        for task in self._models.waiting():
            plan = task.plan
            if plan.experiment is None and not passes.isdisjoint(
                map(windows_of, plan.missing or ())
            ):
                missing = missing_passes(self._store, plan.needs.values())
                if not missing and self._models.remove(task):
                    task.plan = replace(plan, missing=())
                    with contextlib.suppress(Cancelled):
                        self._put(task)

    def _on_stage(self, task: Task, budget: Budget, stage: Stage) -> bool:
        """Answer what is looked at from a stage of a pass; return whether the pass may end."""
        began = time.monotonic()
        tasks = [task, *(each for each in self._models.waiting() if each is not task)]
        if budget.allows(stage):
            for each in tasks:
                try:
                    for query in each.looked_at:
                        if execute.form(self._store, each.plan, stage, query):
                            self._say(each.key, {"formed": stage.windows})
                except Exception as error:  # the pass itself may go on well
                    _failure(error)  # into the log
            budget.spend(time.monotonic() - began)
        keeping = [each for each in tasks if each.keep]
        if keeping:
            stage.write(self._store, stage.run)
        for each in keeping:
            each.keep = False
            self._say(each.key, {"kept": stage.windows})
        until = task.plan.run.until
        return until is not None and is_met(until, stage)

    def _yielding(self, report: Report) -> Report:
        """Return a report that, between two batches, first does the short experiments that wait."""

        def yielding(done: int, total: int, note: str) -> None:
            while (short := self._models.take(lambda task: task.short)) is not None:
                self._attempt(short)
            report(done, total, note)

        return yielding

    def _start(self, report: Report) -> Any:
        """Return this process's worker context, importing torch on first use."""
        if self._context is None:
            report(0, 0, "Starting torch")
            from poskernel_core.passes.worker_context import WorkerContext

            self._context = WorkerContext(self._store)
        return self._context

    def _join(self, key: str, client: str) -> None:
        """Add a client to a task; the task may now run in that client's turn too."""
        task = self._tasks.get(key)
        if task is None:
            return
        with self._choosing:
            task.clients.append(client)
            for queue in self._queues:
                queue.join(task, client)

    def _leave(self, key: str, client: str) -> None:
        """Remove a client from a task that others still wait for."""
        task = self._tasks.get(key)
        if task is None:
            return
        with self._choosing:
            if client in task.clients:
                task.clients.remove(client)
            for queue in self._queues:
                queue.leave(task, client)

    def _keep(self, key: str) -> None:
        """Keep the statistics of the next stage of the pass that a task waits for."""
        if task := self._tasks.get(key):
            task.keep = True

    def _look(self, key: str, query: int) -> None:
        """Answer a task at this position too while it forms."""
        if task := self._tasks.get(key):
            others = [n for n in task.looked_at if n != query]
            task.looked_at = [query, *others][:LOOKS]

    def _cancel(self, key: str) -> None:
        """Stop a task: at once if it is queued, else at its next report."""
        task = self._tasks.get(key)
        if task is None:
            return
        task.cancelled.set()
        with self._choosing:
            ends_now = task.waiting and not task.ended
            task.ended = task.ended or ends_now
        if ends_now:
            for queue in self._queues:
                queue.remove(task)
            self._end(task, {"state": "cancelled"})

    def _end(self, task: Task, ending: dict[str, Any]) -> None:
        if self._tasks.get(task.key) is task:
            del self._tasks[task.key]
        self._say(task.key, ending)

    def _reporter(self, task: Task) -> Report:
        return reporter(partial(self._say, task.key), task.cancelled.is_set)

    def _say(self, key: str, event: Event) -> None:
        say(self._output, {"key": key, **event})


def _failure(error: BaseException) -> dict[str, Any]:
    """Return the event that ends a task with an error."""
    if isinstance(error, Cancelled):
        return {"state": "cancelled"}
    if isinstance(error, PosKernelError):
        return {"state": "error", "error": type(error).__name__, "message": str(error)}
    with contextlib.suppress(Exception):
        traceback.print_exception(error, file=sys.stderr)
    brief = (str(error).strip().splitlines() or [""])[0][:200]
    return {
        "state": "error",
        "error": ComputeFailed.__name__,
        "message": f"The computation failed ({type(error).__name__}: {brief}).",
    }


if __name__ == "__main__":
    Worker(Store(Path(sys.argv[1])), events_only()).serve(sys.stdin)
    os._exit(0)  # nobody waits any longer for what the threads are doing
