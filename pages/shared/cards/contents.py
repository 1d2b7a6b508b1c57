"""The list of what is on a long page: links to its figures, under the page's title."""

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from pages.shared.cards.plain import plain

MIN_FIGURES = 4
"""Number of figures from which a page has a list."""


@dataclass(frozen=True)
class _Contents:
    """The place of the list, and the anchor and title of every figure drawn so far."""

    place: Any
    found: list[tuple[str, str]] = field(default_factory=list)


_OPEN: ContextVar[_Contents | None] = ContextVar("contents", default=None)


def no_contents() -> None:
    """Begin a page without a list, whatever the run of the script before left."""
    _OPEN.set(None)


def contents_here() -> None:
    """Make room for the list; call it once, under the page's title."""
    with st.container(key="contents"):
        _OPEN.set(_Contents(st.empty()))


def mention(anchor: str, title: str) -> None:
    """Note that a figure stands on the page."""
    contents = _OPEN.get()
    if contents is not None:
        contents.found.append((anchor, title))


def fill_contents() -> None:
    """Draw the list of the figures that were drawn, if they are many; call it last."""
    contents = _OPEN.get()
    if contents is not None and len(contents.found) >= MIN_FIGURES:
        links = " · ".join(f"[{plain(title)}](#{anchor})" for anchor, title in contents.found)
        contents.place.markdown(f":small[On this page: {links}]")
