"""Links to pages with the head, the run and the pins that are chosen on this one."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

import streamlit as st

from poskernel_core.analyses.comparison.pins import Pin

__all__ = ["ONE_HEAD", "head_link", "page_address", "pin_link"]

ONE_HEAD: Final = "One head"
"""The title of the page with everything about one head."""

SHARED: Final = (
    "model", "revision", "checkpoint", "corpus", "context", "texts", "start", "dtype", "query",
    "skip", "pins",
)  # fmt: skip
"""What all pages mean alike; a page's own choices stay behind."""


def page_address(page: str, cell: str = "", **more: str) -> str:
    """Return the address of a page for a head, which is named: pages open on heads of their own."""
    kept = {key: value for key, value in st.query_params.to_dict().items() if key in SHARED}
    named = {"cell": cell or str(st.session_state.get("cell", ""))}
    return (
        f"{page}?{urlencode(kept | {key: value for key, value in (named | more).items() if value})}"
    )


def head_link(cell: str, words: str = "") -> str:
    """Return a head's name as a link, in Markdown, to the page with everything about it."""
    return f"[{words or cell}]({page_address('head', cell)})"


def pin_link(pin: Pin) -> str:
    """Return a pinned head's name as a link to its own page, in its own run."""
    pins = {key: value for key, value in st.query_params.to_dict().items() if key == "pins"}
    named = {
        "model": pin.model,
        "revision": pin.revision or "",
        "checkpoint": pin.revision or "",
        "cell": pin.cell,
        "corpus": pin.corpus,
        "context": "" if pin.context is None else str(pin.context),
        "texts": str(pin.texts),
        "start": str(pin.start).lower(),
        "dtype": pin.dtype,
    }
    query = urlencode(pins | {key: value for key, value in named.items() if value})
    return f"[{pin.cell}](head?{query})"
