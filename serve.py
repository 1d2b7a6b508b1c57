"""The server: ``streamlit run serve.py`` serves ``app.py`` with what Streamlit leaves out."""

import sys

import streamlit as st
from starlette.middleware import Middleware

from poskernel_core.common.errors import BadRequest
from serving.headers import SecurityHeaders, security_headers
from serving.memory import upkeep
from serving.navigation import leave_folder_alone
from serving.page import KnownServer

leave_folder_alone()
try:
    headers = security_headers()
except BadRequest as error:
    sys.exit(str(error))
app = st.App(
    "app.py",
    middleware=[Middleware(SecurityHeaders, headers=headers), Middleware(KnownServer)],
    lifespan=upkeep,
)
