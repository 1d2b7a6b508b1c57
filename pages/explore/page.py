"""Explore: all heads as points, on two measures or by their kernels, coloured by a measure."""

from typing import Final

import plotly.graph_objects as go
import streamlit as st

from pages.explore.arranged import (
    KERNELS,
    MEASURES,
    Arranged,
    arrangements,
    by_kernels,
    by_measures,
    by_places,
)
from pages.explore.chosen import choose_by_hand, draw_names, draw_table
from pages.explore.columns import our_columns
from pages.explore.tables import their_columns
from pages.shared.cards.card import card
from pages.shared.cards.figure import chart
from pages.shared.cards.plain import capital
from pages.shared.jobs import results
from pages.shared.selection.fit import choose_one, linked
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.head_measures.spec import HeadMeasures, HeadMeasuresParams
from poskernel_core.common.rounding import counted
from poskernel_core.plotting.head_scatter import Head, head_scatter, shown_on
from poskernel_core.plotting.layout import TITLE, set_title

PLACE = Place(
    "Explore",
    "Each point is a head. Draw a loop or a box around some of them to list them below.",
    questions=("headvis", "head-examples", "near-kernels", "place-and-content"),
)

TOOLS: Final = {"loop": "lasso", "box": "select", "click": "pan"}
"""Plotly's drag modes; its clicks select heads only in the mode ``pan``."""


def draw_points(selection: Selection, arranged: Arranged, chosen: list[Head]) -> None:
    """Draw the card with all heads as points."""
    x, y, colour, told = arranged.x, arranged.y, arranged.colour, arranged.told
    at = (selection.layer, selection.head)

    def figure() -> go.Figure:
        made = head_scatter(x, y, colour, told=told, selected=at, chosen=chosen)
        return made.update_yaxes(scaleanchor="x") if arranged.one_scale else made

    def draw() -> None:
        clicks = "«click» selects one head on every page"
        tool = choose_one("Choose heads by", TOOLS, "tool", help=clicks)
        clickmode = "event+select" if tool == "click" else "event"
        shown = figure().update_layout(dragmode=TOOLS[tool], clickmode=clickmode)
        chart("heads", lambda: shown, titled=True, pick=choose_by_hand)

    def titled() -> go.Figure:
        made = set_title(figure(), arranged.heading)
        return made.update_layout(margin_t=made.layout.margin.t + TITLE)

    card("heads", titled, arranged.result, arranged.words, capital(arranged.heading), draw=draw)
    missing = x.values.size - len(shown_on(x, y))
    if missing:
        st.caption(f"{missing} of {counted(x.values.size, 'head')} not drawn: a value is missing.")


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    axes = st.container()
    more = st.container(horizontal=True, vertical_alignment="center", key="more-columns")
    again = more.toggle(
        "Also measures for which the model runs again",
        help="such as the induction score; they take longer the first time",
        width="content",
        **linked("again"),
    )
    asked = HeadMeasuresParams(skip=selection.skip, query=selection.query, experiments=again)
    found = results.fetch(HeadMeasures, selection.run, asked)
    theirs = their_columns(selection, more)
    if found is None:
        return
    columns = our_columns(found) | theirs
    with axes:
        offered = arrangements(selection.located.geometry)
        how = choose_one("Arrange heads by", offered, "arrange")
        arranged: Arranged | None
        if how == MEASURES:
            arranged = by_measures(found, columns)
        else:
            arranged = (by_kernels if how == KERNELS else by_places)(selection, columns)
    if arranged is None:
        return
    points = st.container()
    chosen = draw_names(selection)  # first: it reads the heads of a link
    with points:
        draw_points(selection, arranged, chosen)
    draw_table(selection, chosen, columns, arranged.told)
