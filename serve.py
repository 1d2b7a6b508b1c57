"""The server: ``streamlit run serve.py`` serves ``app.py`` with what Streamlit leaves out."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import streamlit as st
from starlette.middleware import Middleware

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.settings import check_paths, settings
from serving.access_log import AccessLog, open_log
from serving.address import ask_nobody, greet
from serving.headers import SecurityHeaders, security_headers
from serving.health import health_route
from serving.hidden import Hidden
from serving.limits import Bounds, Doors, Limits
from serving.memory import upkeep
from serving.navigation import leave_folder_alone
from serving.page import KnownServer
from serving.watch import Watch, served_engine

leave_folder_alone()
ask_nobody()
try:
    told = settings()
    check_paths()
    doors, watch = Doors(Bounds.of_host()), Watch(served_engine)
    around = [
        Middleware(SecurityHeaders, headers=security_headers()),
        Middleware(Limits, doors=doors),
        Middleware(Hidden),
        Middleware(KnownServer),
    ]
    if log := told.access_log:  # the outermost, so that refusals are in it
        around.insert(0, Middleware(AccessLog, log=open_log(log), short=told.short_addresses))
    if told.metrics:
        from serving.metrics import tell

        tell(told.metrics, doors, watch)
except BadRequest as error:
    sys.exit(str(error))


@asynccontextmanager
async def lifespan(app: object) -> AsyncIterator[None]:
    """Say where the pages are once all is ready, and look after the memory."""
    async with upkeep(app):
        greet()
        yield


app = st.App(
    "app.py",
    routes=[health_route(watch, lambda: doors.sessions)],
    middleware=around,
    lifespan=lifespan,
)
