"""The server's own address: told to the host at the start, and asked of nobody.

Left to itself, Streamlit asks a host of Amazon's for this machine's public address: when it starts
without an address of its own, for a line of its greeting, and again whenever a web socket comes
from a page of another host, while all readers wait for the answer. Its greeting is printed before
any code of ours runs, so that ``.streamlit/config.toml`` turns it off, and ours stands here.
"""

from __future__ import annotations

import os
import sys
import time
from threading import Thread
from urllib.parse import urlencode

from streamlit import cli_util, config, net_util
from streamlit.web.server import server_util

from poskernel_core.common.settings import settings
from poskernel_core.models.catalog import name_in
from poskernel_core.server import PATIENCE, answers

__all__ = ["ask_nobody", "greet"]

EVERYWHERE = ("0.0.0.0", "::", "")
"""Addresses to listen at that are no address to go to."""


def ask_nobody() -> None:
    """Have Streamlit take the public address for unknown."""
    net_util.get_external_ip = lambda: None


def greet() -> None:
    """Say where the pages are, on standard error: standard output may be the access log's.

    They open on the first of ``POSKERNEL_MODELS``, and with ``POSKERNEL_OPEN`` in a browser.
    """
    first = name_in(os.environ.get("POSKERNEL_MODELS", "").partition(",")[0].strip())
    pages = served_at() + (f"/?{urlencode({'model': first})}" if first else "")
    print(f"\n  PosKernel is served at {pages}\n", file=sys.stderr, flush=True)
    if settings().open:
        Thread(target=_open, args=(pages,), daemon=True).start()


def _open(pages: str) -> None:
    """Open the pages in a browser, if there is one, as soon as the server answers."""
    end = time.monotonic() + PATIENCE
    while not answers(served_at()) and time.monotonic() < end:
        time.sleep(0.1)
    cli_util.open_browser(pages)


def served_at() -> str:
    """Return the address of the pages as far as the server knows it."""
    host = config.get_option("server.address") or ""
    if config.is_manually_set("browser.serverAddress"):
        host = config.get_option("browser.serverAddress")
    return server_util.get_url("localhost" if host in EVERYWHERE else host)
