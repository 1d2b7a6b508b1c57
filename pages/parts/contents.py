"""The list of what is on a long page: links to its figures, under the page's title."""

from __future__ import annotations

from contextvars import ContextVar

import streamlit as st

from pages.parts.plain import plain

__all__ = ["contents_here", "fill_contents", "mention"]

FEWEST = 4
"""Figures from which on a page has a list."""

_FOUND: ContextVar[list[tuple[str, str]] | None] = ContextVar("contents", default=None)
KEY = "contents"


def contents_here() -> None:
    """Make room for the list; call it once, under the page's title."""
    with st.container(key=KEY):
        st.session_state["contents-place"] = st.empty()
    _FOUND.set([])


def mention(anchor: str, title: str) -> None:
    """Note that a figure stands on the page."""
    found = _FOUND.get()
    if found is not None:
        found.append((anchor, title))


def fill_contents() -> None:
    """Draw the list of the figures that were drawn, if they are many; call it last."""
    found = _FOUND.get()
    if found is None:
        return
    _FOUND.set(None)
    place = st.session_state.pop("contents-place")
    if len(found) >= FEWEST:
        links = " · ".join(f"[{plain(title)}](#{anchor})" for anchor, title in found)
        place.markdown(f":small[On this page: {links}]")
