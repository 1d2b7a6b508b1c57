"""The worker process: ``python -m poskernel_core.engine.worker CACHE_DIRECTORY``.

It reads messages as JSON lines from standard input and writes events as JSON lines to standard
output; arrays go through the store, never through the pipe. One thread does all that runs a model;
between two batches of a pass it does the short experiments that wait. Other threads do the
arithmetic on stored sums, so that a click on a head never waits for a pass. Clients take turns. A
task that fails reports its error and never stops its thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from io import TextIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poskernel_core.common.errors import Cancelled, ComputeFailed, PosKernelError, StoreFailed
from poskernel_core.common.progress import Report
from poskernel_core.common.specs import Execution
from poskernel_core.engine import execute
from poskernel_core.engine.plan import Plan, missing_passes
from poskernel_core.engine.process import Event, Hear, events_only, reporter, say
from poskernel_core.engine.queue import Queue, Task
from poskernel_core.engine.targets import is_met
from poskernel_core.storage.statistics import missing_statistics, windows_of
from poskernel_core.storage.store import LayerMissing, Store

if TYPE_CHECKING:
    from poskernel_core.passes.forming import Stage

SHARE = 0.025
"""Most of a pass' time that results which form on the way may take, after the first ones."""

ARITHMETIC = 2
"""Threads for the arithmetic on stored sums."""


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


def give_back() -> None:
    """Return free memory to the system, for some milliseconds, where the C library is glibc.

    Freed tensors leave holes that glibc keeps, so that memory grows with every new kind of work.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


class Worker:
    """Reads messages, puts their tasks into the queue and reports events."""

    def __init__(self, store: Store, output: TextIOBase, context: Any = None) -> None:
        self._store = store
        self._output = output
        self._tasks: dict[str, Task] = {}
        self._queue = Queue()
        self._context = context
        self._threads: list[threading.Thread] = []

    def serve(self, lines: Iterable[str]) -> None:
        """Work until the input ends, which means that the parent process is gone."""
        self.start()
        for line in lines:
            self.hear(json.loads(line))

    def start(self) -> None:
        """Start the threads."""
        for on_device in (True, *[False] * ARITHMETIC):
            thread = threading.Thread(target=self._work, args=(on_device,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def hear(self, message: Mapping[str, Any]) -> None:
        """Do what a message says: its first field is what to do, with the task or tasks."""
        (verb, about), *given = message.items()
        if verb == "tasks":
            self._take(about)
        elif (task := self._tasks.get(about)) is not None:
            getattr(task, verb)(**dict(given))
            if task.cancelled.is_set() and self._queue.remove(task):
                self._end(task, {"state": "cancelled"})

    def stop(self) -> None:
        """Cancel all tasks, and wait until no thread runs: at the next report of each."""
        for task in [*self._tasks.values()]:
            task.cancel()
        self._queue.close()
        for thread in self._threads:
            thread.join()

    def _take(self, messages: Iterable[dict[str, Any]]) -> None:
        """Queue tasks that were sent together, so that they can share a pass."""
        tasks = []
        for message in messages:
            try:
                plan, execution = Plan.read(message["plan"]), Execution(**message["execution"])
                tasks.append(Task(message["key"], plan, execution, (message["client"],)))
            except Exception as error:
                self._say(message["key"], _failure(error))
        self._tasks |= {task.key: task for task in tasks}
        self._queue.put(*tasks)

    def _work(self, on_device: bool) -> None:
        while (task := self._queue.get(on_device)) is not None:
            self._attempt(task)
            give_back()

    def _attempt(self, task: Task) -> None:
        ending: Event = {"state": "done"}
        try:
            if not self._step(task):
                self._queue.put(task)
                return
        except BaseException as error:  # keep the thread alive, even if the log is not writable
            ending = _failure(error)
        self._end(task, ending)

    def _step(self, task: Task) -> bool:
        plan, report = task.plan, reporter(partial(self._say, task.key), task.cancelled.is_set)

        def formed(done: int) -> None:
            self._say(task.key, {"formed": done})

        try:
            if not task.on_device:
                execute.compute(self._store, plan, report)
                return True
            shared = self._start(report)
            if not plan.run.model.fingerprint:
                plan = execute.located(plan).looked_up(self._store)
            if task.short:
                execute.perform(shared, plan, task.execution, report, formed)
                return True
            report, dtype = self._sharing(report), plan.run.dtype if plan.missing else "float32"
            with shared.models.holding(plan.run.model, task.execution.device, dtype):
                if plan.missing:
                    waiting = self._queue.for_device()
                    others = [
                        queued.plan for queued in waiting if queued.execution == task.execution
                    ]
                    on_stage = partial(self._on_stage, task, Budget())
                    execute.gather_missing(shared, plan, task.execution, report, others, on_stage)
                elif plan.experiment is not None:
                    execute.perform(shared, plan, task.execution, report, formed)
                    return True
            self._release(plan)
            task.plan = replace(plan, missing=())
        except LayerMissing as error:  # another process may have evicted them meanwhile
            task.attempts += 1
            if task.attempts == execute.ATTEMPTS:
                raise ComputeFailed(execute.DROPPED) from error
            task.plan = plan.looked_up(self._store)
        return False

    def _release(self, gathered: Plan) -> None:
        """Hand on the waiting analyses that a pass has gathered everything for."""
        passes = set(map(windows_of, gathered.missing or ()))
        for task in self._queue.for_device():
            plan = task.plan
            waited = not passes.isdisjoint(map(windows_of, plan.missing or ()))
            if not waited or plan.experiment is not None:
                continue
            if not missing_passes(self._store, plan.needs.values()):
                self._queue.replan(task, replace(plan, missing=()))

    def _on_stage(self, task: Task, budget: Budget, stage: Stage) -> bool:
        """Answer what is looked at from a stage of a pass; return whether the pass may end."""
        began, tasks = time.monotonic(), [task, *self._queue.for_device()]
        if budget.allows(stage):
            for sharer in tasks:
                try:
                    for query in sharer.looked_at:
                        if execute.form(self._store, sharer.plan, stage, query):
                            self._say(sharer.key, {"formed": stage.windows})
                except Exception as error:  # the pass itself may go on well
                    with contextlib.suppress(Exception):
                        traceback.print_exception(error, file=sys.stderr)
            budget.spend(time.monotonic() - began)
        self._keep(stage, [keeper for keeper in tasks if keeper.keeping])
        until = task.plan.run.until
        return until is not None and is_met(until, stage)

    def _keep(self, stage: Stage, wanted: Sequence[Task]) -> None:
        """Keep the statistics of a stage if a task wants them; the pass goes on in any case."""
        event: Event = {"kept": stage.windows}
        for task in wanted:
            task.keeping = False
        try:
            if wanted:
                stage.write(self._store, stage.run)
                if missing_statistics(self._store, stage.run):
                    event = {"refused": execute.DROPPED}
        except StoreFailed as error:
            event = {"refused": str(error)}
        for task in wanted:
            self._say(task.key, event)

    def _sharing(self, report: Report) -> Report:
        """Return a report that first does the short experiments that wait.

        They get at most half of the time, so that a pass never stands still.
        """
        began, spent = time.monotonic(), 0.0

        def sharing(done: int, total: int, note: str) -> None:
            nonlocal spent
            while 2 * spent <= (now := time.monotonic()) - began:
                if (short := self._queue.take(True, lambda task: task.short)) is None:
                    break
                self._attempt(short)
                spent += time.monotonic() - now
            report(done, total, note)

        return sharing

    def _start(self, report: Report) -> Any:
        if self._context is None:
            report(0, 0, "Starting torch")
            from poskernel_core.passes.worker_context import WorkerContext

            self._context = WorkerContext(self._store)
        return self._context

    def _end(self, task: Task, ending: Event) -> None:
        self._tasks.pop(task.key, None)
        self._say(task.key, ending)

    def _say(self, key: str, event: Event) -> None:
        say(self._output, {"key": key, **event})


class WorkerHere(Worker):
    """A worker in this process, for models that only this process has; an engine's child.

    Args:
        store: its store.
        hear: called by its threads with each event.
        context: the models that it runs.
    """

    alive, pid = True, os.getpid()

    def __init__(self, store: Store, hear: Hear, context: Any) -> None:
        super().__init__(store, sys.stderr, context)  # type: ignore[arg-type]
        self._hear = hear
        self.start()

    def tell(self, message: Event) -> bool:
        """Take a message, as JSON values."""
        self.hear(json.loads(json.dumps(message)))
        return True

    def close(self) -> int:
        """Stop."""
        self.stop()
        return 0

    def _say(self, key: str, event: Event) -> None:
        self._hear({"key": key, **event})


def _failure(error: BaseException) -> dict[str, Any]:
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
