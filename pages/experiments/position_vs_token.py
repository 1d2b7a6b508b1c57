"""Position against token: what a head does with one of the two taken away."""

from __future__ import annotations

from functools import partial
from typing import Final, cast

import streamlit as st

from pages.parts import results
from pages.parts import words_experiments as words
from pages.parts.cards import card, chart
from pages.parts.contents import contents_here
from pages.parts.experiment_controls import Draws, choose_draws, choose_number, enough_context
from pages.parts.figures.layout import set_height
from pages.parts.figures.of_experiments import (
    condition_map_figure,
    pattern_conditions_figure,
    score_conditions_figure,
)
from pages.parts.head_choice import HeadChoice, choose_head
from pages.parts.position_cards import draw_first, draw_look_back
from pages.parts.selection import Selection
from pages.parts.settle import settled
from poskernel_core.analyses.base import Result
from poskernel_core.analyses.position_vs_token import CONDITIONS

selection = cast(Selection, st.session_state["selection"])
geometry = selection.located.geometry
URL: Final = "query-params"
MOST = 256
MAP = 340  # height in pixels of a map that fills a third of the page


def draw_head(parts: Result, head: HeadChoice, query: int) -> None:
    """Draw the head's scores and patterns in the three runs."""
    one = parts.select(layer=head.layer, head=head.head)
    row = one.select(query=query)
    left, right = st.columns(2)
    with left:
        figure = partial(score_conditions_figure, parts, head.layer, head.head, query)
        card("scores", figure, row.only("score"), words.SCORES)
    with right:
        figure = partial(pattern_conditions_figure, parts, head.layer, head.head, query)
        card("attention", figure, row.only("pattern"), words.CONDITIONS)  # fmt: skip
    maps = partial(condition_map_figure, parts, head.layer, head.head)

    def draw() -> None:
        for number, column in enumerate(st.columns(len(CONDITIONS))):
            with column:
                chart(f"map-{number}", set_height(maps(number), MAP))

    card("maps", partial(maps, 0), one.only("pattern"), words.MAPS,
         f"Mean patterns of {head.cell}", draw)  # fmt: skip


def draw_page(draws: Draws) -> None:
    """Draw everything that follows from the chosen sequences."""
    left, right = st.columns(2)
    lengths = range(5, min(MOST, geometry.n_ctx) + 1)
    length = choose_number(left, "Length (tokens)", lengths, "plength", 24)
    rows = range(2, length)
    query = right.select_slider(
        "Row n (tokens)", rows, key="pquery", bind=URL,
        **settled("pquery", rows, min(8, rows[-1])),
    )  # fmt: skip
    parts = results.fetch("position-vs-token", draws.run, length=length, samples=draws.samples)
    if parts is None:
        return
    head = choose_head(parts.values["profile"][0, ..., 1], selection, "previous-token head")
    draw_head(parts, head, query)
    draw_look_back(parts, head, selection.cell)
    st.subheader("The exception of position 0", anchor="position-0")
    zero = results.fetch("position-zero", draws.run, samples=draws.samples)
    if zero is not None:
        draw_first(zero, parts, head)


st.title("Position against token")
contents_here()
st.markdown(
    "Random sequences with both embeddings, with positions only, and with tokens only: which of "
    "the two makes a head attend as it does?"
)
if geometry.scheme == "rotary":
    st.info(
        "This model rotates positions in and has no positional embeddings: *position only* means "
        "content replaced by its mean (the start token keeps its own, as it is always the same), "
        "*token only* means no rotation.",
        icon=":material/info:",
    )
if enough_context(selection):
    draw_page(choose_draws(selection, 500))
