"""``/health``: whether the server can show stored results and compute new ones.

Streamlit's own ``/_stcore/health`` says only that the process answers. This one checks the store
and the worker (it never starts a worker). The status is 200 if pages can be shown, else 503.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from poskernel_core.common.errors import NoSpace, PosKernelError, ReadOnlyStore, StoreFailed
from poskernel_core.common.settings import settings
from poskernel_core.engine.admission import computes
from poskernel_core.engine.engine import Engine
from poskernel_core.server import identity
from poskernel_core.storage.store import Store

HEALTH = "/health"
STATES = ("writable", "read-only", "full", "failing")
WHY = {
    "failing": "The store can be neither read nor written: look at its folder, at who owns that, "
    "and at its disk.",
    "read-only": "The store cannot be written: what it holds is shown, and nothing new is kept.",
    "full": "The disk that holds the store is full: what it holds is shown, and nothing new is "
    "kept.",
    "ended": "The compute process has ended, killed or out of memory: the next computation starts "
    "another.",
}
"""Explanations, by the state of the store or of the worker."""


@dataclass(frozen=True)
class Condition:
    """The state of a store.

    Attributes:
        state: ``writable``, ``read-only`` or ``full`` (both readable), or ``failing``.
        entries: number of entries, without shipped results; None if unknown.
        size: bytes of their values; None if unknown.
    """

    state: str
    entries: int | None = None
    size: int | None = None


def condition(store: Store) -> Condition:
    """Check a store; a damaged database is set aside, as on any other access."""
    state = "writable"
    try:
        try:
            store.make_room(0)
        except NoSpace:
            state = "full"
        except ReadOnlyStore:
            state = "read-only"
        sizes = store.keys()
        return Condition(state, len(sizes), sum(sizes.values()))
    except StoreFailed:
        return Condition("failing")


FAILING = Condition("failing")


class HealthMonitor:
    """Checks an engine and its store in a separate thread, since a disk may hang.

    Args:
        engine: returns the engine, creating it if needed.
        kept: seconds for which the state of the store is cached.
        patience: seconds after which the disk is considered to hang.
    """

    def __init__(
        self, engine: Callable[[], Engine], kept: float = 5.0, patience: float = 3.0
    ) -> None:
        self._make = engine
        self._kept, self._patience = kept, patience
        self._thread = ThreadPoolExecutor(1, "health")
        self._lock = threading.Lock()
        self._check: Future[Condition] | None = None
        self._began = 0.0
        self.engine: Engine | None = None

    def store(self) -> Condition:
        """Return the state of the store, at most a few seconds old."""
        with self._lock:
            check = self._check
            aged = time.monotonic() - self._began >= self._kept
            if check is None or (check.done() and aged):
                check = self._check = self._thread.submit(self._look)
                self._began = time.monotonic()
        try:
            return check.result(self._patience)
        except TimeoutError:
            return FAILING

    @property
    def worker(self) -> str:
        """The state of the worker: ``none`` (not started), ``alive`` or ``ended``."""
        return "none" if self.engine is None else self.engine.worker

    def report(self) -> dict[str, object]:
        """Return the health: ``ok``, or ``limited`` or ``failing`` with the reason.

        On a read-only server, a store that cannot be written is ``ok``.
        """
        store, worker = self.store().state, self.worker
        limited = worker == "ended" or (store != "writable" and not settings().read_only)
        status = "failing" if store == "failing" else "limited" if limited else "ok"
        why = {} if status == "ok" else {"why": WHY[worker if store == "writable" else store]}
        return {"status": status, **why, "store": store, "worker": worker, "computes": computes()}

    def _look(self) -> Condition:
        try:
            self.engine = self._make()
            return condition(self.engine.store)
        except (PosKernelError, OSError):
            return FAILING


def health_route(monitor: HealthMonitor, sessions: Callable[[], int]) -> Route:
    """Return the route of ``/health``; ``sessions`` returns the number of open sessions."""

    def answer(_: Request) -> Response:
        report = monitor.report()
        status = 503 if report["status"] == "failing" else 200
        also = {"sessions": sessions(), **identity()}
        return JSONResponse(report | also, status, {"Cache-Control": "no-store"})

    return Route(HEALTH, answer, methods=["GET"])
