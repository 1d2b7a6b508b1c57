"""Explore: all heads as points on two measures, coloured by a third."""

from typing import Final

import plotly.graph_objects as go
import streamlit as st

from pages.explore.chosen import choose_by_hand, draw_names, draw_table
from pages.explore.columns import choose_three, our_columns, words
from pages.explore.scatter import Column, Head, head_scatter, shown_on
from pages.explore.tables import their_columns
from pages.shared.cards.card import card, chart
from pages.shared.cards.plain import capital
from pages.shared.jobs import results
from pages.shared.selection.fit import choose_one, linked
from pages.shared.selection.place import Place, Screenshot
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.head_measures.spec import HeadMeasures, HeadMeasuresParams
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.plotting.layout import TITLE, set_title

PLACE = Place(
    "Explore",
    "Each point is a head. Draw a loop or a box around some of them to list them below.",
    picture=Screenshot("", "heads"),
    questions=("headvis", "head-examples"),
)

TOOLS: Final = {"loop": "lasso", "box": "select", "click": "pan"}
"""Plotly's drag modes; its clicks select heads only in the mode ``pan``."""

Three = tuple[Column, Column, Column]


def draw_points(selection: Selection, found: Result, three: Three, chosen: list[Head]) -> None:
    """Draw the card with all heads as points."""
    x, y, colour = three
    at = (selection.layer, selection.head)

    def figure() -> go.Figure:
        return head_scatter(x, y, colour, selected=at, chosen=chosen)

    def draw() -> None:
        told = "«click» selects one head on every page"
        tool = choose_one("Choose heads by", TOOLS, "tool", help=told)
        shown = figure().update_layout(dragmode=TOOLS[tool])
        chart("heads", shown, pick=choose_by_hand)

    heading = f"{y.title} against {x.title}"

    def titled() -> go.Figure:
        made = set_title(figure(), heading)
        return made.update_layout(margin_t=made.layout.margin.t + TITLE)

    card("heads", titled, found, words(three), capital(heading), draw=draw)
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
        three = choose_three(columns)
    points = st.container()
    chosen = draw_names(selection)  # first: it reads the heads of a link
    with points:
        draw_points(selection, found, three, chosen)
    draw_table(selection, chosen, columns, three)
