"""The worker process: ``python -m poskernel_core.engine.worker CACHE_DIRECTORY``.

It reads messages as JSON lines from standard input and writes events as JSON lines to standard
output; arrays go through the store, never through the pipe. Three queues run in parallel: passes
(torch), short experiments (torch, a few seconds), and analyses of stored statistics, so that a
click on a head does not wait for another model's pass. In each queue clients take turns. A task
that fails reports its error and never stops its queue.
"""

import contextlib
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from io import TextIOBase
from pathlib import Path
from typing import Any

from poskernel_core.common import heap
from poskernel_core.common.errors import Cancelled, ComputeFailed, PosKernelError
from poskernel_core.common.progress import Report
from poskernel_core.common.specs import Execution, Request
from poskernel_core.engine import execute
from poskernel_core.engine.lanes import Lane
from poskernel_core.engine.process import Event, events_only, reporter, say
from poskernel_core.engine.requests import CanonicalRequest, received
from poskernel_core.storage.statistics import LayerMissing
from poskernel_core.storage.store import Store

TIDY_AFTER = 5.0
"""Seconds after a step until its freed memory is returned to the system."""

STARTING_TORCH = threading.Lock()
"""Held while torch is imported; otherwise a second thread could see a half-imported module."""


@dataclass(eq=False)
class _Task:
    """A request in progress, under its job's key; a composition continues at ``part``."""

    key: str
    request: Request
    execution: Execution
    clients: list[str] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)
    part: int = 0
    waiting: bool = True
    ended: bool = False

    @cached_property
    def asked(self) -> CanonicalRequest:
        """The checked request, computed in the first queue and cached for later ones.

        Raises:
            BadRequest: its parameters do not fit the question.
        """
        return received(self.request)


class Worker:
    """Reads messages, puts their tasks into the queues and reports events."""

    def __init__(self, store: Store, output: TextIOBase) -> None:
        self._store = store
        self._output = output
        self._choosing = threading.Lock()
        self._tasks: dict[str, _Task] = {}
        self._analyses, self._passes, self._experiments = self._lanes = (
            Lane[_Task](),
            Lane[_Task](),
            Lane[_Task](),
        )
        self._context: Any = None
        self._stepped = threading.Event()

    def serve(self, lines: Iterable[str]) -> None:
        """Work until the input ends, which means that the parent process is gone."""
        lanes = (
            (self._analyses, self._analyse),
            (self._passes, self._pass),
            (self._experiments, self._experiment),
        )
        for tasks, step in lanes:
            threading.Thread(target=self._serve_lane, args=(tasks, step), daemon=True).start()
        threading.Thread(target=self._tidy, daemon=True).start()
        for line in lines:
            message = json.loads(line)
            if "cancel" in message:
                self._cancel(message["cancel"])
            elif "join" in message:
                self._join(message["join"], message["client"])
            elif "leave" in message:
                self._leave(message["leave"], message["client"])
            else:
                self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        request = Request.model_validate(message["request"])
        execution = Execution.model_validate(message["execution"])
        task = _Task(message["key"], request, execution, [message.get("client", "")])
        self._tasks[task.key] = task
        self._attempt(task, lambda: self._queue(self._analyses, task))

    def _serve_lane(self, tasks: Lane[_Task], step: Callable[[_Task], bool]) -> None:
        while True:
            task = tasks.get()
            self._attempt(task, partial(step, task))
            self._stepped.set()

    def _tidy(self) -> None:
        """Return free memory to the system a few seconds after a step, even within a long task."""
        while True:
            self._stepped.wait()
            time.sleep(TIDY_AFTER)
            self._stepped.clear()
            heap.give_back()

    def _analyse(self, task: _Task) -> bool:
        if task.asked.composition is not None:
            return self._queue(self._passes, task)
        if execute.missing_runs(self._store, task.asked):
            return self._queue(self._passes, task)
        experiment = task.asked.experiment
        if experiment is not None:
            return self._queue(self._passes if experiment.long else self._experiments, task)
        try:
            execute.compute(self._store, task.asked, self._reporter(task))
        except LayerMissing:
            return self._queue(self._passes, task)
        return True

    def _pass(self, task: _Task) -> bool:
        report = self._reporter(task)
        shared = self._start(report)
        if task.asked.composition is not None:
            after = execute.compute_part(shared, task.asked, task.part, task.execution, report)
            task.part = after or 0
            return after is None or self._queue(self._passes, task)  # others get turns in between
        others = [
            other.asked for other in self._passes.waiting() if other.execution == task.execution
        ]
        execute.gather_missing(shared, task.asked, task.execution, report, others)
        if execute.missing_runs(self._store, task.asked):
            raise ComputeFailed(execute.DROPPED)
        experiment = task.asked.experiment
        if experiment is None or not experiment.long:
            return self._queue(self._analyses, task)
        return self._perform(task, report)

    def _experiment(self, task: _Task) -> bool:
        return self._perform(task, self._reporter(task))

    def _perform(self, task: _Task, report: Report) -> bool:
        shared = self._start(report)
        try:
            execute.perform(shared, task.asked, task.execution, report)
        except LayerMissing:
            return self._queue(self._passes, task)
        return True

    def _start(self, report: Report) -> Any:
        """Return this process's worker context, importing torch on first use."""
        with STARTING_TORCH:
            if self._context is None:
                report(0, 0, "Starting torch")
                from poskernel_core.passes.worker_context import WorkerContext

                self._context = WorkerContext(self._store)
        return self._context

    def _queue(self, lane: Lane[_Task], task: _Task) -> bool:
        """Put a task in a queue; return False, since the task continues there.

        Raises:
            Cancelled: the task was cancelled since its last report.
        """
        with self._choosing:
            if task.cancelled.is_set():
                raise Cancelled("Cancelled.")
            lane.put(task, *task.clients)
            task.waiting = True
        return False

    def _join(self, key: str, client: str) -> None:
        """Add a client to a task; the task may now run in that client's turn too."""
        task = self._tasks.get(key)
        if task is None:
            return
        with self._choosing:
            task.clients.append(client)
            for lane in self._lanes:
                lane.join(task, client)

    def _leave(self, key: str, client: str) -> None:
        """Remove a client from a task that others still wait for."""
        task = self._tasks.get(key)
        if task is None:
            return
        with self._choosing:
            if client in task.clients:
                task.clients.remove(client)
            for lane in self._lanes:
                lane.leave(task, client)

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
            for lane in self._lanes:
                lane.remove(task)
            self._end(task, {"state": "cancelled"})

    def _end(self, task: _Task, ending: dict[str, Any]) -> None:
        if self._tasks.get(task.key) is task:
            del self._tasks[task.key]
        self._say(task.key, ending)

    def _attempt(self, task: _Task, step: Callable[[], bool]) -> None:
        """Run one step of a task; report how the task ended, unless it continues."""
        with self._choosing:
            if task.ended:
                return
            task.waiting = False
        try:
            if task.cancelled.is_set():
                raise Cancelled("Cancelled.")
            if not step():
                return
            ending: dict[str, Any] = {"state": "done"}
        except Cancelled:
            ending = {"state": "cancelled"}
        except PosKernelError as error:
            ending = {"state": "error", "error": type(error).__name__, "message": str(error)}
        except BaseException as error:  # keep the queue alive, even if the log is not writable
            with contextlib.suppress(Exception):
                traceback.print_exc(file=sys.stderr)
            ending = {
                "state": "error",
                "error": ComputeFailed.__name__,
                "message": f"The computation failed ({type(error).__name__}: {_brief(error)}).",
            }
        self._end(task, ending)

    def _reporter(self, task: _Task) -> Report:
        return reporter(partial(self._say, task.key), task.cancelled.is_set)

    def _say(self, key: str, event: Event) -> None:
        say(self._output, {"key": key, **event})


def _brief(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]


if __name__ == "__main__":
    Worker(Store(Path(sys.argv[1])), events_only()).serve(sys.stdin)
