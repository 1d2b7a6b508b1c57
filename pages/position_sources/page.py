"""Sources: which earlier parts of the model write the position that a head reads."""

from functools import partial
from typing import Final

import numpy as np
import streamlit as st

from pages.shared.cards.show import show, show_graph
from pages.shared.jobs.pressed import fetch_when_asked
from pages.shared.selection.head_link import head_link, page_address
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.position_sources.figures import largest
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

BY_OFFSET: Final = "each part's score by offset, and how far the kernel moves without it"
"""What one head's own result has beside the shares of all heads."""
NAMED: Final = 6
"""Components that the line above the figures names."""

OF_ALL: Final = ("share", "equal_share", "noise", "position_share")


def draw_head(selection: Selection, head: Result) -> None:
    """Draw one head's components: shares and effects, and the map, if they are there."""
    st.markdown(sources_told(head))
    show("sources", head.only(*(name for name in (*OF_ALL, "effect") if name in head.values)))
    if "score" not in head.values:
        return
    if selection.query in head.coordinates["query"]:
        at_query = head.only("share", "effect", "score").select(query=selection.query)
        show("sources-map", at_query)
    if selection.located.geometry.scheme == "rotary" and np.isfinite(head.values["share"]).any():
        show("turning", head.only("share", "turned_share", "place_share"))


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


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    st.subheader(head_link(selection.cell), anchor="head")
    one, title, below = st.container(), st.container(), st.container()
    params = PositionSourcesParams(skip=selection.skip)
    with below:
        every = fetch_when_asked(PositionSources, selection.run, params, "compute-sources", "graph")
    with one:
        of_head = HeadSourcesParams(head=selection.cell, skip=selection.skip)
        asks = ("compute-head-sources", "sources", "sources-map", "turning")
        shares, left = None, ""
        if every is not None:
            left = BY_OFFSET
            shares = partial(draw_head, selection, selection.of(every.only(*OF_ALL)))
        if head := fetch_when_asked(
            HeadSources, selection.run, of_head, *asks, left=left, meanwhile=shares
        ):
            draw_head(selection, head)
    title.subheader("All heads", anchor="all")
    if every is not None:
        with below:
            show_graph("graph", every.only("share"), "Who feeds whom: the largest shares")
