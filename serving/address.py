"""Print the server's own address at the start.

Streamlit's greeting asks an external host for this machine's public address before any of our code
runs. ``.streamlit/config.toml`` turns it off, and :func:`greet` replaces it.
"""

import os
import sys
import time
from threading import Thread
from urllib.parse import urlencode

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


def served_at() -> str:
    """Return the address of the pages, from the server's configuration."""
    named = config.is_manually_set("browser.serverAddress")
    host = config.get_option("browser.serverAddress" if named else "server.address")
    host = "localhost" if host in (None, "", "0.0.0.0", "::") else host
    return server_util.get_url(f"[{host}]" if ":" in host else host)


def _open(root: str, pages: str) -> None:
    """Open a browser as soon as the server answers."""
    end = time.monotonic() + PATIENCE
    while not answers(root) and time.monotonic() < end:
        time.sleep(0.1)
    cli_util.open_browser(pages)
