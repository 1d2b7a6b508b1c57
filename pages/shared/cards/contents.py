"""The title of a page, what it is about, and beside them the list of its figures."""

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from pages.shared.cards.plain import plain

MIN_FIGURES = 4
"""A page has a list if it has at least this many figures."""


@dataclass(frozen=True)
class _Contents:
    """Where the list goes, and the anchor and title of every figure drawn so far."""

    place: Any
    found: list[tuple[str, str]] = field(default_factory=list)


_OPEN: ContextVar[_Contents | None] = ContextVar("contents", default=None)


def title_here(title: str, about: str, *, wanted: bool) -> None:
    """Draw a page's title and what it is about, with room for the list if it is ``wanted``."""
    with st.container(key="title"):
        left, right = st.columns([3, 2], gap="large") if wanted else (st.container(), None)
    left.title(title, anchor="page")
    left.markdown(about)
    _OPEN.set(None if right is None else _Contents(right.container(key="contents")))


def mention(anchor: str, title: str) -> None:
    """Add a figure to the list."""
    contents = _OPEN.get()
    if contents is not None:
        contents.found.append((anchor, title))


def fill_contents() -> None:
    """Draw the list of figures if it is long enough; call this after all figures are drawn."""
    contents = _OPEN.get()
    if contents is not None and len(contents.found) >= MIN_FIGURES:
        links = " · ".join(f"[{plain(title)}](#{anchor})" for anchor, title in contents.found)
        contents.place.markdown(f":small[On this page: {links}]")
