"""``/health``: whether the server can show what is stored, and compute what is not.

Streamlit's own ``/_stcore/health`` says only that the process answers. This looks at the store and
at the worker: 200 where pages can be shown, 503 where they cannot.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from poskernel_core import __version__
from poskernel_core.common.errors import ComputeDisabled
from poskernel_core.common.settings import settings
from poskernel_core.engine.preflight import check_worker
from serving.watch import Watch

__all__ = ["HEALTH", "health_route"]

HEALTH = "/health"

WHY = {
    "failing": "The store can be neither read nor written: look at its folder, at who owns that, "
    "and at its disk.",
    "read-only": "The store cannot be written: what it holds is shown, and nothing new is kept.",
    "full": "The disk that holds the store is full: what it holds is shown, and nothing new is "
    "kept.",
    "ended": "The compute process has ended, killed or out of memory: the next computation starts "
    "another.",
}
"""What is not as the host meant it to be, by the state of the store or of the worker."""


def health_route(watch: Watch, sessions: Callable[[], int]) -> Route:
    """Return the address at which the server's health is told.

    Args:
        watch: what looks at engine and store.
        sessions: returns how many are open.
    """

    async def answer(request: Request) -> Response:
        told = await run_in_threadpool(_told, watch)
        status = 503 if told["status"] == "failing" else 200
        also = {"sessions": sessions(), "version": __version__}
        return JSONResponse(told | also, status, {"Cache-Control": "no-store"})

    return Route(HEALTH, answer, methods=["GET"])


def _told(watch: Watch) -> dict[str, object]:
    """Return what is told; ``limited``, and why, where something is not as the host meant it."""
    store, computes = watch.store().state, _computes()
    worker = watch.worker
    less = worker == "ended" or (store != "writable" and not settings().read_only)
    status = "failing" if store == "failing" else "limited" if less else "ok"
    why = {} if status == "ok" else {"why": WHY[worker if store == "writable" else store]}
    return {"status": status, **why, "store": store, "worker": worker, "computes": computes}


def _computes() -> bool:
    """Tell whether new results can be computed here at all."""
    try:
        check_worker()
    except ComputeDisabled:
        return False
    return True
