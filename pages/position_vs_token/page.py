"""Position against token: a head's attention with only one of the two."""

from functools import partial

import streamlit as st

from pages.position_vs_token import captions as words
from pages.position_vs_token.sections import draw_first, draw_look_back
from pages.shared.cards.card import card
from pages.shared.cards.figure import charts
from pages.shared.experiments.random_controls import (
    Draws,
    choose_draws,
    choose_number,
    enough_context,
)
from pages.shared.jobs import results
from pages.shared.selection.fit import fitted
from pages.shared.selection.head_choice import offer_strongest
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.position_vs_token.figures import (
    condition_map_figure,
    pattern_conditions_figure,
    score_conditions_figure,
)
from poskernel_core.analyses.position_vs_token.spec import (
    CONDITIONS,
    PositionVsToken,
    PositionVsTokenParams,
    PositionZero,
    PositionZeroParams,
)
from poskernel_core.analyses.random_tokens.params import SAMPLES
from poskernel_core.common.result import Result

PLACE = Place(
    "Position and token",
    "Random sequences with positions and tokens, with positions only, and with tokens "
    "only: which makes a head attend as it does?",
    questions=("position-vs-token", "position-zero"),
)

MAX_LENGTH = 256


def draw_head(parts: Result, selection: Selection, query: int) -> None:
    """Draw the head's scores and patterns in the three runs."""
    one = selection.of(parts)
    row = one.select(query=query)
    left, right = st.columns(2)
    with left:
        figure = partial(score_conditions_figure, parts, selection.layer, selection.head, query)
        card("scores", figure, row.only("score"), words.SCORES)
    with right:
        figure = partial(pattern_conditions_figure, parts, selection.layer, selection.head, query)
        card("attention", figure, row.only("pattern"), words.CONDITIONS)
    maps = partial(condition_map_figure, parts, selection.layer, selection.head)

    def draw() -> None:
        numbers = range(len(CONDITIONS))
        charts({f"map-{number}": partial(maps, number) for number in numbers}, square=True)

    patterns, title = one.only("pattern"), f"Mean patterns of {selection.cell}"
    card("maps", partial(maps, 0), patterns, words.MAPS, title, draw)


def draw_page(selection: Selection, draws: Draws) -> None:
    """Draw the results for the chosen sequences."""
    geometry = selection.located.geometry
    left, right = st.columns(2)
    lengths = range(5, min(MAX_LENGTH, geometry.n_ctx) + 1)
    length = choose_number(left, "Length (tokens)", lengths, "plength", 24)
    rows = [*range(2, length)]
    query = right.select_slider("Row n (tokens)", **fitted("pquery", rows, min(8, rows[-1])))
    asked = PositionVsTokenParams(length=length, samples=draws.samples)
    parts = results.fetch(PositionVsToken, draws.run, asked)
    if parts is None:
        return
    offer_strongest(parts.values["profile"][0, ..., 1], selection, "previous-token head")
    draw_head(parts, selection, query)
    draw_look_back(parts, selection)
    st.subheader("The exception of position 0", anchor="position-0")
    zero = results.fetch(PositionZero, draws.run, PositionZeroParams(samples=draws.samples))
    if zero is not None:
        draw_first(zero, parts, selection)


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    geometry = selection.located.geometry
    if geometry.scheme == "rotary":
        st.info(
            "This model has rotary positions and no positional embeddings: *position only* means "
            "content replaced by its mean (except at the start token, which is always the same), "
            "*token only* means no rotation.",
            icon=":material/info:",
        )
    elif geometry.scheme != "learned":
        st.info(
            f"This model has {geometry.scheme} positions, and no positional embeddings: *position "
            "only* means content replaced by its mean, *token only* means without a bias by "
            "distance.",
            icon=":material/info:",
        )
    if enough_context(selection):
        draw_page(selection, choose_draws(selection, SAMPLES))
