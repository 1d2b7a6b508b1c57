"""One computation under way: what it is, how far it has come, who waits for it, how it ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from poskernel_core.common.errors import Cancelled, by_name
from poskernel_core.engine.requests import CanonicalRequest

__all__ = ["Job"]


@dataclass
class Job:
    """One computation, shared by everybody who asked for it.

    Attributes:
        key: what the worker knows it by; a request that is asked for anew has another job.
        state: ``queued``, ``running``, ``done``, ``error`` or ``cancelled``.
        done, total: progress in windows or steps; ``total`` is 0 while it is not known.
        note: what is going on, in words.
        error: what went wrong.
        visitors: the visitors who asked for it and have not cancelled, each with the person whose
            turn it waits for.
        missed_since: when all of them were first found gone; None while one is there.
        cancelling: whether it was told to stop; whoever asks from then on has another job.
        abandoned: whether it was, because all of them were gone for long.
        on_end: what is called with the job, once, when it ends.
    """

    key: str
    request: CanonicalRequest
    state: str = "queued"
    done: int = 0
    total: int = 0
    note: str = "Waiting for its turn"
    error: Exception | None = None
    began: float = field(default_factory=time.monotonic)
    visitors: dict[str, str] = field(default_factory=dict)
    missed_since: float | None = None
    cancelling: bool = False
    abandoned: bool = False
    on_end: Callable[[Job], None] | None = None
    _first: tuple[float, int] | None = None
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def ended(self) -> bool:
        """Tell whether nothing more will happen."""
        return self._ended.is_set()

    def wait(self, seconds: float | int | None = None) -> bool:
        """Wait until the job has ended or ``seconds`` have passed; tell whether it has ended."""
        return self._ended.wait(seconds)

    def seconds_left(self) -> float | None:
        """Estimate the time left from the pace so far; None while there is no pace."""
        if self._first is None or self.done <= self._first[1] or not self.total:
            return None
        pace = (time.monotonic() - self._first[0]) / (self.done - self._first[1])
        return pace * (self.total - self.done)

    def take(self, event: Mapping[str, Any]) -> None:
        """Take in an event of the worker."""
        note = event.get("note", self.note)
        if note != self.note:
            self._first = None
        self.done, self.total = event.get("done", self.done), event.get("total", self.total)
        if self._first is None and self.total:
            self._first = (time.monotonic(), self.done)
        self.note, self.state = note, event["state"]
        if self.state == "error":
            self.error = by_name(event["error"])(event["message"])
        elif self.state == "cancelled":
            self.error = Cancelled("The computation was cancelled.")
        if self.state in ("done", "error", "cancelled"):
            if not self.ended and self.on_end is not None:
                self.on_end(self)
            self._ended.set()
