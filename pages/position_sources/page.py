"""Sources: which earlier parts of the model write the position that a head reads."""

from functools import partial
from typing import Final

import numpy as np
import streamlit as st

from pages.position_sources import captions as words
from pages.shared.cards.card import card
from pages.shared.cards.figure import chart
from pages.shared.jobs.pressed import fetch_when_asked
from pages.shared.selection.fit import linked
from pages.shared.selection.head_link import head_link, page_address
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection, select_head
from poskernel_core.analyses.position_sources.figures import (
    LEAST,
    bars_figure,
    graph_figure,
    largest,
    map_figure,
    turning_figure,
)
from poskernel_core.analyses.position_sources.spec import (
    HeadSources,
    HeadSourcesParams,
    PositionSources,
    PositionSourcesParams,
)
from poskernel_core.common.heads import layer_of
from poskernel_core.common.result import Result
from poskernel_core.plotting.conditions import measured

PLACE = Place(
    "Sources",
    "Which earlier parts of the model write the position that a head reads: the positional "
    "embedding, earlier heads, or MLPs.",
    questions=("position-sources", "head-position-sources"),
)

NAMED: Final = 6
"""Components that the line above the figures names."""

SHARES: Final = (0.05, 0.1, 0.2, 0.3, 0.5)
OF_ALL: Final = ("share", "equal_share", "noise", "position_share")


def draw_head(selection: Selection, head: Result) -> None:
    """Draw one head's components: shares and effects, and the map, if they are there."""
    st.markdown(sources_told(head))
    bars = head.only(*(name for name in (*OF_ALL, "effect") if name in head.values))
    card("sources", partial(bars_figure, bars), bars, words.BARS)
    if "score" not in head.values:
        return
    if selection.query in head.coordinates["query"]:
        shown = head.only("share", "effect", "score").select(query=selection.query)
        card("sources-map", partial(map_figure, shown), shown, words.MAP)
    if selection.located.geometry.scheme == "rotary" and np.isfinite(head.values["share"]).any():
        shown = head.only("share", "turned_share", "place_share")
        card("turning", partial(turning_figure, shown), shown, words.TURNING)


def sources_told(head: Result) -> str:
    """Return the largest shares as a line, in which heads are links that select them."""
    share, error, names = head.values["share"], head.errors["share"], head.words("source")
    if np.isnan(share).all():
        return ":small[No shares are given: see the sentence below.]"
    order = sorted(largest(head, NAMED), key=lambda place: -abs(share[place]))
    parts = [f"{_linked(names[place])} {measured(share[place], error[place])}" for place in order]
    return f"Largest shares: {', '.join(parts)}."


def _linked(name: str) -> str:
    return f"[{name}]({page_address('position_sources', name)})" if layer_of(name) >= 0 else name


def draw_graph(every: Result) -> None:
    """Draw who feeds whom, with a choice of the smallest share."""
    least = st.select_slider("Smallest share drawn", SHARES, LEAST, **linked("feeds"))
    shown = every.only("share")
    figure = partial(graph_figure, shown, least)

    def draw() -> None:
        clicked = graph_figure(shown, least).update_layout(clickmode="event+select", dragmode="pan")
        chart("graph", lambda: clicked, pick=pick_head)

    card("graph", figure, shown, words.GRAPH, f"Who feeds whom: shares of {least:g} or more", draw)


def pick_head(names: list[str], many: bool) -> None:
    """Select the head that was clicked; other components are no heads. A callback."""
    if layer_of(names[0]) >= 0:
        select_head(names[0])


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    st.subheader(head_link(selection.cell), anchor="head")
    one = st.container()
    st.subheader("All heads", anchor="all")
    asked = PositionSourcesParams(skip=selection.skip)
    every = fetch_when_asked(PositionSources, selection.run, asked, "compute-sources", "graph")
    if every is not None:
        draw_graph(every)
    with one:
        of_head = HeadSourcesParams(head=selection.cell, skip=selection.skip)
        asks = ("compute-head-sources", "sources", "sources-map", "turning")
        head = fetch_when_asked(HeadSources, selection.run, of_head, *asks)
        if head is None and every is not None:
            head = selection.of(every.only(*OF_ALL))
        if head is not None:
            draw_head(selection, head)
