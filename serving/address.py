"""The server's own address: told to the host at the start, and asked of nobody.

Left to itself, Streamlit asks a host of Amazon's for this machine's public address: when it starts
without an address of its own, for a line of its greeting, and again whenever a web socket comes
from a page of another host, while all readers wait for the answer. Its greeting is printed before
any code of ours runs, so that ``.streamlit/config.toml`` turns it off, and ours stands here.
"""

from __future__ import annotations

import sys

from streamlit import config, net_util
from streamlit.web.server import server_util

__all__ = ["ask_nobody", "greet"]

EVERYWHERE = ("0.0.0.0", "::", "")
"""Addresses to listen at that are no address to go to."""


def ask_nobody() -> None:
    """Have Streamlit take the public address for unknown."""
    net_util.get_external_ip = lambda: None


def greet() -> None:
    """Say where the pages are, on standard error: standard output may be the access log's."""
    print(f"\n  PosKernel is served at {served_at()}\n", file=sys.stderr, flush=True)


def served_at() -> str:
    """Return the address of the pages as far as the server knows it."""
    host = config.get_option("server.address") or ""
    if config.is_manually_set("browser.serverAddress"):
        host = config.get_option("browser.serverAddress")
    return server_util.get_url("localhost" if host in EVERYWHERE else host)
