"""Methods: every definition, and the reproduction ledger."""

import streamlit as st

from pages.methods.definitions import draw_definitions, draw_plugins
from pages.methods.ledger import draw_ledger
from pages.shared.selection.fit import choose_one
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection

PLACE = Place(
    "Methods",
    "What every number means, and how the published ones compare with ours.",
)

TABS = ("Definitions", "Reproduction ledger")


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    part = choose_one("Part", TABS, "part", label_visibility="collapsed")
    if part == TABS[0]:
        st.markdown(
            "What every number means, from the docstrings of the code that computes it. Shapes are "
            "in brackets; `n` is the query position, `i` the key position. Intervals are for a "
            "number of windows that was chosen beforehand: looking again and again while results "
            "form makes them a little too narrow."
        )
        draw_plugins()
        draw_definitions()
    else:
        st.markdown(
            "Figures published in the posts and in the literature, next to the same figures "
            "computed on this machine. A figure agrees if each of its numbers differs from the "
            "published one by no more than the tolerance plus half the width of our 95 % interval."
        )
        draw_ledger(selection)
