"""What waits in the worker: for the device, or for a thread of arithmetic; clients take turns."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from poskernel_core.common.errors import Cancelled
from poskernel_core.common.specs import Execution
from poskernel_core.engine.plan import Plan

LOOKS = 3
"""Most query positions at which a result forms."""


@dataclass(eq=False)
class Task:
    """A plan in progress, under its job's key.

    Attributes:
        looked_at: the query positions at which somebody looks at the result while it forms.
        keeping: whether somebody wants the statistics of the next stage.
    """

    key: str
    plan: Plan
    execution: Execution
    clients: tuple[str, ...] = ("",)
    looked_at: tuple[int, ...] = ()
    keeping: bool = False
    attempts: int = 0
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def on_device(self) -> bool:
        """Whether its next step runs the model."""
        return bool(self.plan.missing) or self.plan.experiment is not None

    @property
    def short(self) -> bool:
        """Whether it is an experiment of a few seconds, which may run within a pass."""
        experiment = self.plan.experiment
        return experiment is not None and not experiment.long and not self.plan.missing

    def join(self, client: str) -> None:
        """Let the task run in this client's turn too."""
        self.clients += (client,)

    def leave(self, client: str) -> None:
        """Take a client away; others wait still."""
        self.clients = tuple(waiting for waiting in self.clients if waiting != client)

    def look(self, query: int) -> None:
        """Let the result form at this position too."""
        self.looked_at = (query, *(n for n in self.looked_at if n != query))[:LOOKS]

    def keep(self) -> None:
        """Keep the statistics of the next stage of the pass that the task waits for."""
        self.keeping = True

    def cancel(self) -> None:
        """End the task at its next report."""
        self.cancelled.set()


class Queue:
    """The tasks that wait, in order of arrival; each waits for the device or for arithmetic.

    For each of the two, clients take turns: a hundred tasks of one client never delay the first
    task of another. Who has been served goes behind all that wait by the time of the next turn. A
    task that two clients want comes up at the earlier of their turns.
    """

    def __init__(self) -> None:
        self._waiting: dict[Task, None] = {}
        self._turns: dict[bool, list[str]] = {True: [], False: []}
        self._changed = threading.Condition()
        self._closed = False

    def close(self) -> None:
        """Let no thread wait any longer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def put(self, *tasks: Task) -> None:
        """Add tasks, together, so that the first to come up finds the others."""
        with self._changed:
            if any(task.cancelled.is_set() for task in tasks):
                raise Cancelled("The computation was cancelled.")
            self._waiting |= dict.fromkeys(tasks)
            self._changed.notify_all()

    def remove(self, task: Task) -> bool:
        """Remove a task; return whether it was waiting."""
        with self._changed:
            return self._waiting.pop(task, self) is None

    def replan(self, task: Task, plan: Plan) -> None:
        """Give a task another plan if it is still waiting; it then may wait for something else."""
        with self._changed:
            if task in self._waiting:
                task.plan = plan
                self._changed.notify_all()

    def for_device(self) -> list[Task]:
        """Return the tasks that wait for the device."""
        with self._changed:
            return [task for task in self._waiting if task.on_device]

    def get(self, on_device: bool) -> Task | None:
        """Return the first task of the client whose turn it is, waiting until there is one.

        Return None once the queue is closed.
        """
        with self._changed:
            while not self._closed:
                if (task := self.take(on_device)) is not None:
                    return task
                self._changed.wait()
            return None

    def take(self, on_device: bool, fits: Callable[[Task], bool] = bool) -> Task | None:
        """Return the next task that fits, without waiting; None if there is none."""
        with self._changed:
            tasks = [queued for queued in self._waiting if queued.on_device == on_device]
            waiting = dict.fromkeys(client for task in tasks for client in task.clients)
            last = self._turns[on_device]
            turns = [turn for turn in last[:-1] if turn in waiting]
            turns += [turn for turn in waiting if turn not in last]
            turns += [turn for turn in last[-1:] if turn in waiting]
            for client in turns:
                task = next((t for t in tasks if client in t.clients and fits(t)), None)
                if task is not None:
                    del self._waiting[task]
                    turns.remove(client)
                    self._turns[on_device] = [*turns, client]
                    return task
            return None

    def __len__(self) -> int:
        return len(self._waiting)
