"""Methods: every definition, and the reproduction ledger."""

import streamlit as st

from pages.methods.definitions import draw_definitions
from pages.methods.ledger import draw_ledger
from pages.shared.selection.fit import linked
from pages.shared.selection.place import Place, Screenshot
from pages.shared.selection.selection import Selection

PLACE = Place(
    "Methods",
    idle=frozenset({"head", "query", "skip"}),
    picture=Screenshot("part=Reproduction+ledger&published=gpt2&compute=true"),
)

TABS = ("Definitions", "Reproduction ledger")


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    st.title(PLACE.title)
    part = st.segmented_control(
        "Part", TABS, default=TABS[0], required=True, label_visibility="collapsed", **linked("part")
    )
    if part == TABS[0]:
        st.markdown(
            "What every number means, read from the docstrings of the code that computes it. "
            "Shapes are given in brackets; `n` is the query position, `i` the key position."
        )
        draw_definitions()
    else:
        st.markdown(
            "Figures as the posts published them, next to the same figures computed on this "
            "machine. A figure agrees if each of its numbers lies within the tolerance and our "
            "95 % interval of what was published."
        )
        draw_ledger(selection)
