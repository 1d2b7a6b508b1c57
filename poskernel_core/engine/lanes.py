"""A line of waiting tasks in which every visitor has a turn, with bounds on how long it gets."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from poskernel_core.common.errors import Busy

__all__ = ["Lane"]

T = TypeVar("T", bound=Hashable)


@dataclass
class Lane(Generic[T]):
    """Tasks that wait for one thread.

    Visitors take turns: whoever asks for a hundred things waits for ninety-nine of them, not the
    others for his hundred. A task that two visitors want stands in both their rows, and comes up
    at the earlier turn.

    Attributes:
        most: tasks that may wait in all.
        most_each: tasks of one visitor that may wait; the unnamed visitor ``""`` (a program that
            has the engine to itself) is bound by ``most`` alone.
    """

    most: int
    most_each: int
    _rows: OrderedDict[str, deque[T]] = field(default_factory=OrderedDict, repr=False)
    _waiting: set[T] = field(default_factory=set, repr=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, repr=False)

    def put(self, task: T, *visitors: str) -> None:
        """Let a task wait, for all who want it.

        Raises:
            Busy: too many wait already.
        """
        with self._changed:
            if len(self._waiting) >= self.most:
                raise Busy(
                    f"{len(self._waiting)} computations are waiting already: ask again in a moment."
                )
            own = min((self._length(visitor) for visitor in visitors if visitor), default=0)
            if own >= self.most_each:
                raise Busy(
                    f"{own} of your computations are waiting already: ask again when some of them "
                    "are done, or cancel some."
                )
            self._waiting.add(task)
            for visitor in visitors or ("",):
                self._rows.setdefault(visitor, deque()).append(task)
            self._changed.notify()

    def join(self, task: T, visitor: str) -> None:
        """Let a task that waits here wait in one more visitor's row."""
        with self._changed:
            row = self._rows.setdefault(visitor, deque())
            if task in self._waiting and task not in row:
                row.append(task)

    def remove(self, task: T) -> bool:
        """Take a task out; tell whether it was waiting here."""
        with self._changed:
            found = task in self._waiting
            self._waiting.discard(task)
            return found

    def waiting(self) -> list[T]:
        """Return the tasks that wait here, in no particular order."""
        with self._changed:
            return list(self._waiting)

    def get(self) -> T:
        """Return the next task: the first of the visitor whose turn it is; wait for one."""
        with self._changed:
            while True:
                task = self._next()
                if task is not None:
                    return task
                self._changed.wait()

    def __len__(self) -> int:
        return len(self._waiting)

    def _length(self, visitor: str) -> int:
        return sum(task in self._waiting for task in self._rows.get(visitor, ()))

    def _next(self) -> T | None:
        while self._rows:
            visitor, row = self._rows.popitem(last=False)
            while row:
                task = row.popleft()
                if task in self._waiting:
                    self._waiting.remove(task)
                    if row:
                        self._rows[visitor] = row  # after everybody else
                    return task
        return None
