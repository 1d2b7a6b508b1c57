"""The server's own address, told at the start, and its base path.

The base path, such as ``/heads`` (``STREAMLIT_SERVER_BASE_URL_PATH=heads``), is removed from each
request. Pages ask for their parts relative to their own address, so nothing inside the server needs
to know it, and a proxy may pass it on or remove it.

Streamlit's greeting asks an external host for this machine's public address before any of our code
runs. ``.streamlit/config.toml`` turns it off, and :func:`greet` replaces it.
"""

import os
import sys
import time
from threading import Thread
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit import cli_util, config
from streamlit.web.server import server_util

from poskernel_core.common.settings import settings
from poskernel_core.models.catalog import name_in
from poskernel_core.server import PATIENCE, answers


def greet(base: str = "") -> None:
    """Print the address of the pages to standard error; with ``POSKERNEL_OPEN`` open a browser.

    The address opens the first model of ``POSKERNEL_MODELS``. ``base`` is the base path.
    """
    root = served_at() + base
    first = name_in(os.environ.get("POSKERNEL_MODELS", "").partition(",")[0].strip())
    pages = root + (f"/?{urlencode({'model': first})}" if first else "")
    print(f"\n  PosKernel is served at {pages}\n", file=sys.stderr, flush=True)
    if settings().open:
        Thread(target=_open, args=(root, pages), daemon=True).start()


def named_at_start() -> str:
    """Return the host that the server was started with; empty if it listens at any."""
    named = config.is_manually_set("browser.serverAddress")
    host = config.get_option("browser.serverAddress" if named else "server.address")
    return "" if host in (None, "0.0.0.0", "::") else host


def served_at() -> str:
    """Return the address of the pages, from the server's configuration."""
    host = named_at_start() or "localhost"
    return server_util.get_url(f"[{host}]" if ":" in host else host)


def _open(root: str, pages: str) -> None:
    """Open a browser as soon as the server answers."""
    end = time.monotonic() + PATIENCE
    while not answers(root) and time.monotonic() < end:
        time.sleep(0.1)
    cli_util.open_browser(pages)


def take_base() -> str:
    """Return the base path, such as ``/heads``, or an empty string; take it from Streamlit."""
    base = config.get_option("server.baseUrlPath").strip("/")
    config.set_option("server.baseUrlPath", "")
    return base and f"/{base}"


def below(app: ASGIApp, base: str) -> ASGIApp:
    """Wrap an app as Starlette middleware that removes a base path from the path of requests."""
    if not base:
        return app

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path == base and scope["type"] == "http":
            last, query = base.rpartition("/")[2], Request(scope).url.query
            await RedirectResponse(f"{last}/{query and '?'}{query}")(scope, receive, send)
            return
        if path.startswith(f"{base}/"):
            scope = {**scope, "path": path.removeprefix(base)}
        await app(scope, receive, send)

    return served
