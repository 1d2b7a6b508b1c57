"""Sources: which earlier parts of the model write the position that a head reads."""

from functools import partial
from typing import Final

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from pages.shared.cards.card import card
from pages.shared.cards.explained import explained
from pages.shared.cards.figure import chart
from pages.shared.choices.fit import fitted, fitted_flag
from pages.shared.jobs.pressed import fetch_when_asked
from pages.shared.selection.head_link import head_link, page_address
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection, select_head
from poskernel_core.analyses.position_sources.figures import (
    LEAST,
    bars_figure,
    graph_figure,
    largest,
    list_figure,
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

BARS = explained(
    "position-sources",
    "The positional score of a head is a sum over the parts of the model that wrote into the "
    "stream before it. Bars on the left: the share of each part, lowest layer first; parts below 0 "
    "work against the others, and all shares add up to 1. Ticks: the same with all visible keys "
    "weighted alike, not by the kernel. On the right: how far the kernel moves when the part is "
    "taken out of the keys; these distances do not add up. Parts are direct writers, no origins: "
    "an MLP may only pass on what it read of the positional embedding. Error bars: one s.e.",
    "share",
    "equal_share",
)

MAP = explained(
    "head-position-sources",
    "What each part adds to the score of the key at each offset, less its mean over the "
    "head's kernel, since the softmax ignores a constant. Orange raises attention, blue lowers it. "
    "The columns' sums, over all parts, also those that are not shown, are the positional score. "
    "The query position is that of the sidebar.",
    "score",
)

TURNING = explained(
    "head-position-sources",
    "In a rotary model keys are turned by their position. So even a key that is the same "
    "everywhere gives a positional score. Each share is split in two: the part's mean key over all "
    "positions, turned (*supplies the constant key*), and how its key changes from position to "
    "position before it is turned (*knows its place*).",
    "turned_share",
    "place_share",
)

LIST = explained(
    "position-sources",
    "The largest shares of all heads, each a head and a part of the model that it reads position "
    "from. Error bars: one s.e. A click selects the head.",
    "share",
)

GRAPH = explained(
    "position-sources",
    "Layers go upwards. An edge joins a part of the model with a head that reads position from it; "
    "thick edges are shares of 0.5 or more, thin ones less than 0.25. Heads without an edge have "
    "no share that large, or no positional score to explain. Hover over a head for its sources; a "
    "click selects it. Squares on the right are MLPs; embeddings and constants stand below.",
    "share",
)


PLACE = Place(
    "Sources",
    "Which earlier parts of the model write the position that a head reads: the positional "
    "embedding, earlier heads, or MLPs.",
    questions=("position-sources", "head-position-sources"),
)

BY_OFFSET: Final = "each part's score by offset, and how far the kernel moves without it"
"""What one head's own result has beside the shares of all heads."""
NAMED: Final = 6
"""Components that the line above the figures names."""

SHARES: Final = (0.05, 0.1, 0.2, 0.3, 0.5)
OF_ALL: Final = ("share", "equal_share", "noise", "position_share")


def draw_head(selection: Selection, head: Result) -> None:
    """Draw one head's components: shares and effects, and the map, if they are there."""
    st.markdown(sources_told(head))
    bars = head.only(*(name for name in (*OF_ALL, "effect") if name in head.values))
    card("sources", partial(bars_figure, bars), bars, BARS)
    if "score" not in head.values:
        return
    if selection.query in head.coordinates["query"]:
        shown = head.only("share", "effect", "score").select(query=selection.query)
        card("sources-map", partial(map_figure, shown), shown, MAP)
    if selection.located.geometry.scheme == "rotary" and np.isfinite(head.values["share"]).any():
        shown = head.only("share", "turned_share", "place_share")
        card("turning", partial(turning_figure, shown), shown, TURNING)


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
    """Draw the largest shares of all heads; on demand the graph, from a chosen share on."""
    shown = every.only("share")
    if not st.toggle("As a graph", **fitted_flag("asgraph")):
        figure: partial[go.Figure] = partial(list_figure, shown)
        title, told = "Who feeds whom: the largest shares", LIST
    else:
        least = st.select_slider("Smallest share drawn", **fitted("feeds", SHARES, LEAST))
        figure = partial(graph_figure, shown, least)
        title, told = f"Who feeds whom: shares of {least:g} or more", GRAPH

    def draw() -> None:
        clicked = figure().update_layout(clickmode="event+select", dragmode="pan")
        chart("graph", lambda: clicked, pick=pick_head)

    card("graph", figure, shown, told, title, draw)


def pick_head(names: list[str], many: bool) -> None:
    """Select the head that was clicked; other components are no heads. A callback."""
    if layer_of(names[0]) >= 0:
        select_head(names[0])


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    st.subheader(head_link(selection.cell), anchor="head")
    one, below = st.container(), st.container()
    asked = PositionSourcesParams(skip=selection.skip)
    with below:
        st.subheader("All heads", anchor="all")
        every = fetch_when_asked(PositionSources, selection.run, asked, "compute-sources", "graph")
    with one:
        of_head = HeadSourcesParams(head=selection.cell, skip=selection.skip)
        asks = ("compute-head-sources", "sources", "sources-map", "turning")
        bars, rest = st.container(), st.container()
        with rest:
            left = BY_OFFSET if every is not None else ""
            head = fetch_when_asked(HeadSources, selection.run, of_head, *asks, left=left)
        if head is None and every is not None:
            head = selection.of(every.only(*OF_ALL))
        if head is not None:
            with bars:
                draw_head(selection, head)
    if every is not None:
        with below:
            draw_graph(every)
