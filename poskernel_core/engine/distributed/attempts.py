"""The queue of shards that several workers compute, with retries and progress."""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from poskernel_core.common.errors import Cancelled, ComputeFailed, by_name
from poskernel_core.common.rounding import counted
from poskernel_core.common.shards import ShardTask

ATTEMPTS = 3


def failure(task: ShardTask, why: str) -> ComputeFailed:
    """Return the error for a shard that failed in every attempt."""
    return ComputeFailed(
        f"Shard {task.shard} failed {ATTEMPTS} times ({why[:300]}); the others are kept: run the "
        "same command again to go on."
    )


class Attempts:
    """A thread-safe task queue with retries and progress."""

    def __init__(self, tasks: Sequence[ShardTask]) -> None:
        self._waiting = deque(range(len(tasks)))
        self._tasks = tasks
        self._failed = [0] * len(tasks)
        self._progress: dict[int, tuple[int, int]] = {}
        self._open = len(tasks)
        self._changed = threading.Condition()
        self.error: Exception | None = None

    def take(self) -> int | None:
        """Return the number of the next task, waiting for one; None if there will be no more."""
        with self._changed:
            while not self._waiting and self._open and self.error is None:
                self._changed.wait()
            return self._waiting.popleft() if self._waiting and self.error is None else None

    def tell(self, number: int, event: Mapping[str, Any]) -> None:
        """Record an event (progress, success or failure) of a task."""
        with self._changed:
            if event["state"] == "running":
                self._progress[number] = event["done"], event["total"]
                return
            if event["state"] == "done":
                self._open -= 1
                done = max(1, self._progress.get(number, (0, 1))[1])
                self._progress[number] = done, done
            elif not event["again"]:
                self.error = self.error or by_name(event["error"])(event["message"])
            else:
                self._again(number, event["message"])
            self._changed.notify_all()

    def _again(self, number: int, why: str) -> None:
        self._failed[number] += 1
        if self._failed[number] < ATTEMPTS:
            self._waiting.append(number)
        else:
            self.error = self.error or failure(self._tasks[number], why)

    def stop(self) -> None:
        """Cancel the tasks that are not done; :meth:`take` returns None from now on."""
        with self._changed:
            if self._open and self.error is None:
                self.error = Cancelled("The computation was cancelled.")
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for a change; return whether all work is over."""
        with self._changed:
            if self._open and self.error is None:
                self._changed.wait(seconds)
            return not self._open or self.error is not None

    def progress(self) -> tuple[int, int, str]:
        """Return windows done and windows in total (of shards begun), and a note on shards done."""
        with self._changed:
            done, total = (sum(each[part] for each in self._progress.values()) for part in (0, 1))
            finished = len(self._tasks) - self._open
            return done, total, f"{finished} of {counted(len(self._tasks), 'shard')} done; windows"
