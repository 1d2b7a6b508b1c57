"""The fair queue of a worker: clients take turns, in each of its pools."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


@dataclass
class FairQueue(Generic[T]):
    """A thread-safe queue of tasks for the threads of one pool.

    Clients take turns: a hundred tasks of one client never delay the first task of another. Once
    served, a client goes to the back of the queue. A task that two clients want is in the rows of
    both, and runs at the earlier turn.
    """

    _rows: OrderedDict[str, deque[T]] = field(default_factory=OrderedDict, repr=False)
    _waiting: set[T] = field(default_factory=set, repr=False)
    _served: str | None = field(default=None, repr=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, repr=False)

    def put(self, task: T, *clients: str) -> None:
        """Queue a task for the given clients, or for the unnamed client ``""``."""
        with self._changed:
            self._waiting.add(task)
            for client in clients or ("",):
                self._stand(task, client)
            self._changed.notify()

    def join(self, task: T, client: str) -> None:
        """Add a client to a task, if the task is queued here."""
        with self._changed:
            if task in self._waiting:
                self._stand(task, client)

    def leave(self, task: T, client: str) -> None:
        """Remove a task from a client's row."""
        with self._changed:
            row = self._rows.get(client)
            if row is not None and task in row:
                row.remove(task)

    def remove(self, task: T) -> bool:
        """Remove a task; return whether it was queued here."""
        with self._changed:
            found = task in self._waiting
            self._waiting.discard(task)
            return found

    def waiting(self) -> list[T]:
        """Return the queued tasks, in no particular order."""
        with self._changed:
            return list(self._waiting)

    def get(self) -> T:
        """Return the first task of the client whose turn it is, waiting until there is one."""
        with self._changed:
            while (task := self._next(lambda _: True)) is None:
                self._changed.wait()
            return task

    def held(self) -> threading.Condition:
        """Return the queue's lock: while it is held, nothing is taken from the queue."""
        return self._changed

    def take(self, fits: Callable[[T], bool]) -> T | None:
        """Return the next task that fits, without waiting; None if there is none."""
        with self._changed:
            return self._next(fits)

    def __len__(self) -> int:
        return len(self._waiting)

    def _stand(self, task: T, client: str) -> None:
        row = self._rows.setdefault(client, deque())
        if task not in row:
            row.append(task)

    def _next(self, fits: Callable[[T], bool]) -> T | None:
        if self._served is not None and self._served in self._rows:
            self._rows.move_to_end(self._served)
        for client in list(self._rows):
            row = self._rows[client] = deque(t for t in self._rows[client] if t in self._waiting)
            task = next(filter(fits, row), None)
            if task is not None:
                row.remove(task)
                self._waiting.remove(task)
                self._served = client
            if not row:
                del self._rows[client]
            if task is not None:
                return task
        return None
