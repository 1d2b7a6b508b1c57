"""Landing page: a measure of every head, the effective token count first, and one head's kernel."""

from __future__ import annotations

from typing import Final, cast

import streamlit as st

from pages.parts import results, words
from pages.parts.cards import card
from pages.parts.etc_grid import Order, draw_grid, kind_thresholds
from pages.parts.figures.of_result import head_curve
from pages.parts.head import heads_table, summary
from pages.parts.introduction import introduce
from pages.parts.links import offer
from pages.parts.measures import MEASURES, Measure
from pages.parts.plain import plain
from pages.parts.selection import Selection
from poskernel_core.analyses.base import Result
from poskernel_core.analyses.kernels import KINDS
from poskernel_core.exports import identity

URL: Final = "query-params"
ETC = next(iter(MEASURES))

selection = cast(Selection, st.session_state["selection"])


def draw_measure(measure: Measure, etc: Result) -> None:
    """Draw the grid by a measure, once it is known."""
    here = etc.select(query=selection.query)
    found = etc
    if measure.question != "etc":
        asked = results.fetch(measure.question, selection.run, **measure.params(selection))
        if asked is None:
            return
        found = asked
    found = measure.at(found, selection)
    first, at = measure.title == ETC, identity(found).get("n")
    card(
        "etc",
        None,
        here if first else found.only(measure.value),
        words.GRID if first else measure.words(),
        f"{measure.title[0].upper()}{measure.title[1:]}" + (f" at n = {at}" if at else ""),
        draw=lambda: draw_grid(
            measure, found, here, selection, set(shown), Order(order or Order.NUMBER)
        ),
    )


st.title("ETC heat map")
st.markdown(
    "The **effective token count** (ETC) says over how many tokens each head of "
    f"**{plain(selection.run.model.name)}** spreads its attention by position alone, at query "
    f"position {selection.query}. Other measures of all heads can be chosen."
)
introduce()
colour, show, sort, kinds = st.columns([6, 7, 5, 3], vertical_alignment="bottom")
offer("measure", f"offered are {', '.join(MEASURES)}")
chosen = colour.selectbox("Colour heads by", list(MEASURES), key="measure", bind=URL)
shown = show.pills(
    "Show kinds", KINDS, default=KINDS, selection_mode="multi", key="kinds", bind=URL
)
order = Order(sort.selectbox("Order of heads", list(Order), key="order", bind=URL) or Order.NUMBER)
with kinds.popover("Kinds", icon=":material/tune:", width="stretch"):
    thresholds = kind_thresholds()

etc = results.fetch("etc", selection.run, skip=selection.skip, **thresholds)
if etc is not None:
    left, right = st.columns([6, 5])
    with left:
        draw_measure(MEASURES[chosen or ETC], etc)
        here = etc.select(query=selection.query)
        summary(here.select(layer=selection.layer, head=selection.head), meanings=False)
        with st.expander("All heads as a table"):
            heads_table(here, set(shown))
    with right:
        kernel = results.fetch("kernel", selection.run, skip=selection.skip, query=selection.query)
        if kernel is not None:
            curve = kernel.select(layer=selection.layer, head=selection.head)
            local = here.select(layer=selection.layer, head=selection.head).text_of("kind")
            card(
                "kernel",
                lambda: head_curve(curve, selection.query, log_x=local == "local"),
                curve,
                words.CURVE,
                f"{selection.cell} at n = {selection.query}",
            )
