"""Methods: every definition, and the reproduction ledger."""

from __future__ import annotations

from typing import cast

import streamlit as st

from pages.parts.definitions import draw_definitions
from pages.parts.ledger import draw_ledger
from pages.parts.selection import Selection

selection = cast(Selection, st.session_state["selection"])
PARTS = ("Definitions", "Reproduction ledger")

st.title("Methods")
part = st.segmented_control("Part", PARTS, key="part", bind="query-params", default=PARTS[0],
                            required=True, label_visibility="collapsed")  # fmt: skip
if part == PARTS[0]:
    st.markdown(
        "What every number means, read from the docstrings of the code that computes it. Shapes "
        "are given in brackets; `n` is the query position, `i` the key position."
    )
    draw_definitions()
else:
    st.markdown(
        "Figures as the posts published them, beside the same figures computed on this machine. A "
        "figure agrees if each of its numbers lies within the tolerance and two of our standard "
        "errors of what was published."
    )
    draw_ledger(selection)
