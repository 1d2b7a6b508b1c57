"""What can be said of engine and store while they work, without being in their way.

The store is looked at every few seconds at most, however often somebody asks, and in a thread of
its own: a disk that hangs must not keep the server from saying so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from poskernel_core.common.errors import PosKernelError
from poskernel_core.engine.engine import Engine
from poskernel_core.storage.condition import Condition, condition

__all__ = ["Watch", "served_engine"]

KEPT = 5.0
"""Seconds for which what was seen of the store is told again."""

PATIENCE = 3.0
"""Seconds after which a disk is taken to hang."""

FAILING = Condition("failing")


class Watch:
    """Looks at an engine and its store; safe to share between threads.

    Args:
        engine: returns the engine, and makes it where there is none; no worker is started for it.
        kept: seconds for which what was seen of the store is told again.
    """

    def __init__(self, engine: Callable[[], Engine], kept: float = KEPT) -> None:
        self._make = engine
        self._kept = kept
        self._threads = ThreadPoolExecutor(1, "store-watch")
        self._asking = threading.Lock()
        self._look: Future[Condition] | None = None
        self._began = 0.0
        self.engine: Engine | None = None

    def store(self) -> Condition:
        """Return how the store is, or was a few seconds ago."""
        with self._asking:
            now = time.monotonic()
            look = self._look
            if look is None or (look.done() and now - self._began >= self._kept):
                look = self._look = self._threads.submit(self._read)
                self._began = now
        try:
            return look.result(PATIENCE)
        except TimeoutError:
            return FAILING

    @property
    def worker(self) -> str:
        """What became of the worker: ``none`` yet, ``alive``, or ``ended``."""
        return "none" if self.engine is None else self.engine.worker

    def _read(self) -> Condition:
        try:
            self.engine = self._make()
            return condition(self.engine.store)
        except (PosKernelError, OSError):
            return FAILING


def served_engine() -> Engine:
    """Return the engine of the pages."""
    from pages.shared.jobs.results import engine

    return engine()
