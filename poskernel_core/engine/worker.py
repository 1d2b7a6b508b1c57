"""The worker process: ``python -m poskernel_core.engine.worker CACHE_DIRECTORY``.

It reads one JSON message a line from standard input and writes events, one a line, to standard
output; arrays never cross the pipe, they go through the store. Three lanes work side by side:
passes (torch), experiments (torch, seconds), and analyses of statistics that are already there, so
that a click on a head does not wait for another model's pass. In each lane visitors take turns.
Whatever happens to a task, it ends and is told of, and its lane goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
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
from poskernel_core.engine.requests import CanonicalRequest, received
from poskernel_core.storage.statistics import LayerMissing
from poskernel_core.storage.store import Store

__all__ = ["main"]

REPORT_EVERY = 0.1

TIDY_AFTER = 5.0
"""Seconds from the end of a task until what it held goes back to the system."""

STARTING_TORCH = threading.Lock()
"""Held while torch is imported: two threads at once may see half a module."""


@dataclass(eq=False)
class _Task:
    """One request under way, under its job's key; a composition goes on at ``part`` next."""

    key: str
    request: Request
    execution: Execution
    visitors: list[str] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)
    part: int = 0
    waiting: bool = True
    ended: bool = False
    reported: float = 0.0

    @cached_property
    def asked(self) -> CanonicalRequest:
        """The request, checked in the first lane that takes it and kept for those that follow.

        Raises:
            BadRequest: its parameters do not fit the question.
        """
        return received(self.request)


class Worker:
    """Takes messages, hands them to the lanes, reports what became of them."""

    def __init__(self, store: Store, output: TextIOBase) -> None:
        self._store = store
        self._output = output
        self._speaking = threading.Lock()
        self._choosing = threading.Lock()
        self._tasks: dict[str, _Task] = {}
        self._analyses, self._passes, self._experiments = self._lanes = (
            Lane[_Task](),
            Lane[_Task](),
            Lane[_Task](),
        )
        self._workshop: Any = None
        self._stepped = threading.Event()

    def serve(self, lines: Iterable[str]) -> None:
        """Work until the input ends: whoever asked is gone then."""
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
                self._join(message["join"], message["visitor"])
            elif "leave" in message:
                self._leave(message["leave"], message["visitor"])
            else:
                self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        request = Request.model_validate(message["request"])
        execution = Execution.model_validate(message["execution"])
        task = _Task(message["key"], request, execution, [message.get("visitor", "")])
        self._tasks[task.key] = task
        self._attempt(task, lambda: self._queue(self._analyses, task))

    def _serve_lane(self, tasks: Lane[_Task], step: Callable[[_Task], bool]) -> None:
        while True:
            task = tasks.get()
            self._attempt(task, partial(step, task))
            self._stepped.set()

    def _tidy(self) -> None:
        """Give free memory back a while after any step: between bursts of work, and within long."""
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
        workshop = self._start(report)
        if task.asked.composition is not None:
            after = execute.compute_part(workshop, task.asked, task.part, task.execution, report)
            task.part = after or 0
            return after is None or self._queue(self._passes, task)  # others have turns between
        others = [
            other.asked for other in self._passes.waiting() if other.execution == task.execution
        ]
        execute.gather_missing(workshop, task.asked, task.execution, report, others)
        if execute.missing_runs(self._store, task.asked):
            raise ComputeFailed(execute.DROPPED)
        experiment = task.asked.experiment
        if experiment is None or not experiment.long:
            return self._queue(self._analyses, task)
        return self._perform(task, report)

    def _experiment(self, task: _Task) -> bool:
        return self._perform(task, self._reporter(task))

    def _perform(self, task: _Task, report: Report) -> bool:
        workshop = self._start(report)
        try:
            execute.perform(workshop, task.asked, task.execution, report)
        except LayerMissing:
            return self._queue(self._passes, task)
        return True

    def _start(self, report: Report) -> Any:
        """Return the one workshop of this process; torch is imported only once it is needed."""
        with STARTING_TORCH:
            if self._workshop is None:
                report(0, 0, "Starting torch")
                from poskernel_core.passes.workshop import Workshop

                self._workshop = Workshop(self._store)
        return self._workshop

    def _queue(self, lane: Lane[_Task], task: _Task) -> bool:
        """Hand a task to a lane; return False, since it goes on there.

        Raises:
            Cancelled: since its last report.
        """
        with self._choosing:
            if task.cancelled.is_set():
                raise Cancelled("Cancelled.")
            lane.put(task, *task.visitors)
            task.waiting = True
        return False

    def _join(self, key: str, visitor: str) -> None:
        """Let one more visitor wait for a task, in his own turn."""
        task = self._tasks.get(key)
        if task is None:
            return
        with self._choosing:
            task.visitors.append(visitor)
            for lane in self._lanes:
                lane.join(task, visitor)

    def _leave(self, key: str, visitor: str) -> None:
        """Let a task that others wait for come up in their turns alone."""
        task = self._tasks.get(key)
        if task is None:
            return
        with self._choosing:
            if visitor in task.visitors:
                task.visitors.remove(visitor)
            for lane in self._lanes:
                lane.leave(task, visitor)

    def _cancel(self, key: str) -> None:
        """Stop a task: at once if it waits for its turn, else at its next report."""
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
        """Take one step of a task and tell how it ended, unless it goes on."""
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
        except BaseException as error:  # nothing ends a lane, not even a log that cannot be written
            with contextlib.suppress(Exception):
                traceback.print_exc(file=sys.stderr)
            ending = {
                "state": "error",
                "error": ComputeFailed.__name__,
                "message": f"The computation failed ({type(error).__name__}: {_brief(error)}).",
            }
        self._end(task, ending)

    def _reporter(self, task: _Task) -> Report:
        def report(done: int, total: int, note: str) -> None:
            if task.cancelled.is_set():
                raise Cancelled("Cancelled.")
            now = time.monotonic()
            if now - task.reported >= REPORT_EVERY or done == 0:
                task.reported = now
                event = {"state": "running", "done": done, "total": total, "note": note}
                self._say(task.key, event)

        return report

    def _say(self, key: str, event: dict[str, Any]) -> None:
        line = json.dumps({"key": key, **event}) + "\n"
        # Where nobody listens any more the input ends too, and with it the process.
        with self._speaking, contextlib.suppress(OSError, ValueError):
            self._output.write(line)
            self._output.flush()


def _brief(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]


def main() -> None:
    """Serve the standard streams; whatever else prints goes to standard error, the log."""
    events = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    Worker(Store(Path(sys.argv[1])), events).serve(sys.stdin)


if __name__ == "__main__":
    main()
