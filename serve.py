"""The server: ``streamlit run serve.py`` serves ``app.py`` with what Streamlit leaves out."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import streamlit as st
from starlette.middleware import Middleware

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.settings import (
    access_log,
    check_paths,
    check_settings,
    metrics_address,
    short_addresses,
)
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
    check_settings()
    check_paths()
    doors, watch = Doors(Bounds.of_host()), Watch(served_engine)
    around = [
        Middleware(SecurityHeaders, headers=security_headers()),
        Middleware(Limits, doors=doors),
        Middleware(Hidden),
        Middleware(KnownServer),
    ]
    if log := access_log():  # the outermost, so that refusals are in it
        around.insert(0, Middleware(AccessLog, log=open_log(log), short=short_addresses()))
    if address := metrics_address():
        from serving.metrics import tell

        tell(address, doors, watch)
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
