"""A reader's own text: every head's attention on it, and its scores in two parts."""

from functools import partial

import streamlit as st

from pages.own_text import captions as words
from pages.own_text.components import draw_patterns, draw_tokens
from pages.own_text.reasons import draw_reasons
from pages.own_text.row import draw_row
from pages.own_text.typed import choose_text
from pages.shared.cards.card import card
from pages.shared.jobs import results
from pages.shared.selection.fit import choose_one, fitted
from pages.shared.selection.links import write
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.own_text.figures import all_heads_figure, head_figure
from poskernel_core.analyses.own_text.spec import (
    HeadOnText,
    HeadOnTextParams,
    OwnText,
    OwnTextParams,
    kept_around,
)

PLACE = Place(
    "Text",
    "The attention of every head on a text of yours, and how much of it position explains.",
    needs="weights",
    questions=("own-text", "own-text-head", "score-components"),
)


def choose_token(length: int) -> int:
    """Draw the field of the query token; in a shorter text the token moves to the end."""
    return int(
        st.number_input(
            "Query token (position)",
            0,
            length - 1,
            help="a click on a token chooses it as well",
            **fitted("at", range(length), length - 1),
        )
    )


def draw_head(selection: Selection, text: str, length: int) -> None:
    """Draw the selected head: its pattern and tokens, and the chosen token's row."""
    left, right = st.columns(2, vertical_alignment="bottom")
    with left:
        at = choose_token(length)
    with right:
        ways = ("outgoing", "incoming")
        direction = choose_one("Attention shown on the tokens", ways, "direction")
    asked = HeadOnTextParams(
        text=text, head=selection.cell, skip=selection.skip, around=kept_around(length, at)
    )
    found = results.fetch(HeadOnText, selection.run, asked)
    if found is None:
        return
    figure, pattern = partial(head_figure, found), found.only("pattern")
    draw = partial(draw_tokens, found, at, direction, partial(write, "at"))
    card("tokens", figure, pattern, words.HEAD, f"{selection.cell} on the text", draw)
    draw_row(selection, found.select(query=at))
    draw_reasons(selection, text, at)


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    text = choose_text()
    if text is None:
        return
    asked = OwnTextParams(text=text, skip=selection.skip)
    found = results.fetch(OwnText, selection.run, asked)
    if found is None:
        return
    figure, draw = partial(all_heads_figure, found), partial(draw_patterns, found, selection.cell)
    card("heads", figure, found, words.HEADS, "Every head on the text", draw)
    draw_head(selection, text, len(found.words("tokens")))
