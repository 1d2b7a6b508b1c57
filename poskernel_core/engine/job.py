"""A job: one computation with its progress, its clients and its outcome."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from poskernel_core.common.errors import Cancelled, ComputeFailed, by_name
from poskernel_core.engine.plan import Plan

ENDS = ("done", "error", "cancelled")
BROKEN = {
    "state": "error",
    "error": ComputeFailed.__name__,
    "message": "The compute process stopped before it was done (out of memory, or killed): ask "
    "again, it goes on where it stopped.",
}
"""What the jobs of a process that ended are told."""

Client = str | tuple[str, str]
"""Who waits for a job: a client, or a client and the key of the composition's job."""


@dataclass
class Job:
    """One computation, shared by all clients that requested it.

    Attributes:
        key: its key in the worker process; submitting the request again creates another job.
        state: ``queued``, ``running``, ``done``, ``error`` or ``cancelled``.
        done, total: progress in windows or steps; ``total`` is 0 while unknown.
        note: the current step, in words.
        formed: of how many windows (of an experiment: steps) a result is stored already, 0 if of
            none.
        kept: after how many windows the statistics were kept on request; 0 if they were not.
        refused: why they could not be kept; empty if they could.
        error: the error if the job failed or was cancelled.
        clients: the clients that wait for it, each with its person (who takes turns in the queue);
            for a part of a composition ``(client, key of the composition's job)``.
        parts: the jobs of a composition's parts that were not stored.
        missed_since: when all clients were first found gone; None while one is present.
        cancelling: whether it is being stopped; new clients then get another job.
        abandoned: whether it was stopped because all clients had left.
        on_end: called once with the job when it ends.
        on_event: called with the job after every event.
    """

    key: str
    plan: Plan
    state: str = "queued"
    done: int = 0
    total: int = 0
    note: str = "Waiting for its turn"
    formed: int = 0
    kept: int = 0
    refused: str = ""
    error: Exception | None = None
    began: float = field(default_factory=time.monotonic)
    clients: dict[Client, str] = field(default_factory=dict)
    parts: list[Job] = field(default_factory=list)
    missed_since: float | None = None
    cancelling: bool = False
    abandoned: bool = False
    on_end: Callable[[Job], None] | None = None
    on_event: list[Callable[[Job], None]] = field(default_factory=list)
    _first: tuple[float, int] | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _taking: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def ended(self) -> bool:
        """Whether the job is over."""
        return self._ended.is_set()

    def wait(self, seconds: float | int | None = None) -> bool:
        """Wait up to ``seconds`` for the end of the job; return whether it has ended."""
        return self._ended.wait(seconds)

    def seconds_left(self) -> float | None:
        """Estimate the seconds left from the pace so far; None while the pace is unknown."""
        if self._first is None or self.done <= self._first[1] or not self.total:
            return None
        pace = (time.monotonic() - self._first[0]) / (self.done - self._first[1])
        return pace * (self.total - self.done)

    def take(self, event: Mapping[str, Any]) -> None:
        """Update the job from an event of the worker; one that has ended stays as it is."""
        with self._taking:
            if self.ended:
                return
            note = event.get("note", self.note)
            if note != self.note:
                self._first = None
            for name in ("state", "done", "total", "note", "formed", "kept", "refused"):
                setattr(self, name, event.get(name, getattr(self, name)))
            if self._first is None and self.total:
                self._first = (time.monotonic(), self.done)
            if self.state == "error":
                self.error = by_name(event["error"])(event["message"])
            elif self.state == "cancelled":
                self.error = Cancelled("The computation was cancelled.")
            over = self.state in ENDS
            if over and self.on_end is not None:
                self.on_end(self)
            for heard in [*self.on_event]:  # who stops listening meanwhile
                heard(self)
            if over:
                self._ended.set()
