"""The server: ``streamlit run serve.py`` serves ``app.py`` with our additions to Streamlit."""

import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import streamlit as st
import uvicorn
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from streamlit import net_util
from streamlit.runtime.pages_manager import PagesManager
from streamlit.web.server.starlette import starlette_app

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.settings import check_paths, settings
from poskernel_core.engine.engine import Engine
from serving.address import below, greet, named_at_start, take_base
from serving.admission import Admission
from serving.api import Api
from serving.callers import Callers
from serving.headers import security_headers, with_headers
from serving.health import HealthMonitor, health_route
from serving.kept import numbers_route, parts_route, plotly_route
from serving.mcp import Mcp
from serving.memory import collecting
from serving.metrics import listen, registry
from serving.page import page_routes
from serving.sessions import keep_apart
from serving.site import site_routes
from serving.sockets import sending_at_once

STREAM_SECONDS = 3
"""Seconds for which a server that is stopped waits for programs that still listen."""

# The folder `pages` does not hold pages in Streamlit's older sense. Streamlit notices that only at
# the first call of `st.navigation`; until then a link to a page would show "Page not found".
PagesManager.uses_pages_directory = False

# Streamlit would ask an external host for this machine's address whenever a web socket comes from
# another origin, and block all clients meanwhile. Its own metrics must not be public.
net_util.get_external_ip = lambda: None
not_found = Route("/_stcore/metrics", PlainTextResponse("Not Found", 404))
starlette_app.create_metrics_routes = lambda *_: [not_found]  # type: ignore[attr-defined]
keep_apart()


def served_engine() -> Engine:
    """Return the engine of the pages, which are imported once Streamlit's runtime is there."""
    from pages.shared.jobs.results import engine

    return engine()


try:
    told, base = settings(), take_base()
    check_paths()
    admission, monitor = Admission(told), HealthMonitor(served_engine)
    middleware = [
        Middleware(with_headers, headers=security_headers()),
        Middleware(below, base=base),
        Middleware(admission.guard),
    ]
    if told.metrics:
        listen(told.metrics, registry(admission, monitor))
except BadRequest as error:
    sys.exit(str(error))


api = Api(served_engine, Callers())
mcp = Mcp(api, named_at_start(), base)


@asynccontextmanager
async def lifespan(app: st.App) -> AsyncIterator[None]:
    """Print the address of the pages once the server is ready; collect garbage at intervals."""
    handler: Any = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    server = handler if isinstance(handler, uvicorn.Server) else None
    if server is not None:
        server.config.timeout_graceful_shutdown = STREAM_SECONDS
    async with collecting(), mcp.running(), sending_at_once(server):
        greet(base)
        yield


app = st.App(
    "app.py",
    routes=[
        health_route(monitor, lambda: admission.sessions),
        numbers_route(served_engine),
        parts_route(),
        plotly_route(),
        api.route(named_at_start()),
        mcp.route(),
        *site_routes(),
        *page_routes(),
    ],
    middleware=middleware,
    lifespan=lifespan,
)
