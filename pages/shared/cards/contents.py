"""The title of a page, what it is about, and beside them a menu with the list of its figures."""

from typing import Any

import streamlit as st

from pages.shared import run
from pages.shared.cards.plain import plain
from pages.shared.cards.rest import is_far

MIN_FIGURES = 4
"""A page has a list if it has at least this many figures."""


def title_here(title: str, about: str, *, wanted: bool) -> Any:
    """Draw a page's title and what it is about; return room for the list if ``wanted``."""
    with st.container(key="title", gap=None):
        row = st.container(horizontal=True, vertical_alignment="center")
        row.title(title, anchor="page", width="content")
        st.markdown(about)
    return row.container(key="contents", width="content") if wanted else None


def fill_contents(place: Any) -> None:
    """Draw the list of figures if it is long enough; call this after all figures are drawn."""
    figures = run.current().figures
    if place is not None and (is_far() or len(figures) >= MIN_FIGURES):
        menu = place.popover("On this page", icon=":material/toc:", type="tertiary")
        menu.markdown("\n".join(f"* [{plain(title)}](#{anchor})" for anchor, title in figures))
