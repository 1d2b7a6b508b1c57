"""The shards that several workers compute: which wait, how far they are, what is tried again."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from poskernel_core.common.errors import ComputeFailed, by_name
from poskernel_core.common.progress import Report
from poskernel_core.common.rounding import counted
from poskernel_core.common.shards import ShardTask
from poskernel_core.engine.process import Event

ATTEMPTS = 3
LOOK_EVERY = 0.2


def failure(task: ShardTask, why: str) -> ComputeFailed:
    """Return the error for a shard that failed in every attempt."""
    return ComputeFailed(
        f"Shard {task.shard} failed {ATTEMPTS} times ({why[:300]}); the others are kept: run the "
        "same command again to go on."
    )


class Attempts:
    """A queue of numbered tasks with retries and progress; a thread for each may tell its events.

    The ``error`` of a task that failed for good ends all work.
    """

    def __init__(self, tasks: Sequence[ShardTask]) -> None:
        self.tasks = tasks
        self.error: Exception | None = None
        self._waiting = deque(range(len(tasks)))
        self._failed = [0] * len(tasks)
        self._progress = [(0, 0)] * len(tasks)
        self._done: set[int] = set()
        self._changed = threading.Event()

    def run(self, workers: Iterable[Callable[[], None]], report: Report) -> None:
        """Let workers go on, which take a task when they are idle, until all tasks are done."""
        while len(self._done) < len(self.tasks) and self.error is None:
            for go_on in workers:
                go_on()
            self._changed.wait(LOOK_EVERY)
            self._changed.clear()
            report(*self.progress())
        if self.error is not None:
            raise self.error

    def take(self) -> int | None:
        """Return the number of the next task; None if none is waiting."""
        return self._waiting.popleft() if self._waiting and self.error is None else None

    def tell(self, number: int, event: Event) -> None:
        """Record an event (progress, success or failure) of a task."""
        if event["state"] == "running":
            self._progress[number] = event["done"], event["total"]
            return
        if event["state"] == "done":
            done = max(1, self._progress[number][1])
            self._progress[number] = done, done
            self._done.add(number)
        elif not event["again"]:
            self.error = by_name(event["error"])(event["message"])
        elif self._failed[number] < ATTEMPTS - 1:
            self._failed[number] += 1
            self._waiting.append(number)
        else:
            self.error = failure(self.tasks[number], event["message"])
        self._changed.set()

    def progress(self) -> tuple[int, int, str]:
        """Return windows done and windows in total (of shards begun), and a note on shards done."""
        done, total = (sum(each[part] for each in self._progress) for part in (0, 1))
        count = counted(len(self.tasks), "shard")
        return done, total, f"{len(self._done)} of {count} done; windows"
