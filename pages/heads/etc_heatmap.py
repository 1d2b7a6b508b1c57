"""Landing page: the effective token count of every head, and the selected head's kernel."""

from __future__ import annotations

from typing import cast

import streamlit as st

from pages.parts import results, words
from pages.parts.cards import card
from pages.parts.etc_grid import Order, draw_grid, kind_thresholds
from pages.parts.figures.of_result import etc_figure, head_curve
from pages.parts.head import heads_table, summary
from pages.parts.plain import plain
from pages.parts.selection import Selection
from poskernel_core.analyses.kernels import KINDS

selection = cast(Selection, st.session_state["selection"])
st.title("ETC heat map")
st.markdown(
    f"How many tokens each head of **{plain(selection.run.model.name)}** attends to by position "
    f"alone, at query position {selection.query}."
)
show, sort, kinds = st.columns([3, 2, 1], vertical_alignment="bottom")
shown = show.pills(
    "Show kinds", KINDS, default=KINDS, selection_mode="multi", key="kinds", bind="query-params"
)
order = sort.selectbox("Order of heads", list(Order), key="order", bind="query-params")
with kinds.popover("Kinds", icon=":material/tune:", width="stretch"):
    thresholds = kind_thresholds()

etc = results.fetch("etc", selection.run, skip=selection.skip, **thresholds)
if etc is not None:
    here = etc.select(query=selection.query)
    left, right = st.columns([6, 5])
    with left:
        card(
            "etc",
            lambda: etc_figure(here),
            here,
            words.GRID,
            draw=lambda: draw_grid(here, selection, set(shown), Order(order or Order.NUMBER)),
        )
        summary(here.select(layer=selection.layer, head=selection.head), meanings=False)
        with st.expander("All heads as a table"):
            heads_table(here, set(shown))
    with right:
        kernel = results.fetch("kernel", selection.run, skip=selection.skip, query=selection.query)
        if kernel is not None:
            curve = kernel.select(layer=selection.layer, head=selection.head)
            card(
                "kernel",
                lambda: head_curve(curve, selection.query, log_x=curve.text_of("kind") == "local"),
                curve,
                words.CURVE,
                f"{selection.cell} at n = {selection.query}",
            )
