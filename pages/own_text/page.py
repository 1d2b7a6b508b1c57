"""A text of the reader's own: every head's attention on it, and scores split in two."""

from functools import partial
from typing import Final

import streamlit as st

from pages.own_text import captions as words
from pages.own_text.components import draw_patterns, draw_tokens
from pages.own_text.row import draw_row
from pages.own_text.typed import choose_text
from pages.shared.cards.card import card
from pages.shared.cards.contents import contents_here
from pages.shared.cards.plain import plain
from pages.shared.jobs import results
from pages.shared.selection.fit import fitted, linked
from pages.shared.selection.links import write
from pages.shared.selection.place import Place, Screenshot
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
    idle=frozenset({"query"}),
    picture=Screenshot(
        "model=demo-gpt2&head=L2H6&text=blue+fire+water+house+king+garden%3B"
        "+blue+fire+water+house+king+garden%3B+blue+fire"
    ),
    needs="weights",
    questions=("own-text", "own-text-head"),
)

TOKEN: Final = "token"
DIRECTIONS: Final = ("outgoing", "incoming")


def choose_token(length: int) -> int:
    """Draw the field of the query token; a text that is shorter moves it to its end."""
    return int(
        st.number_input(
            "Query token (position)",
            0,
            length - 1,
            help="a click on a token chooses it as well",
            **fitted("at", range(length), length - 1),
        )
    )


def pick_token(at: int) -> None:
    """Choose the query token from elsewhere than its field, in a callback."""
    write("at", at)


def draw_head(selection: Selection, text: str, length: int) -> None:
    """Draw the selected head: its pattern and tokens, and the chosen token's row."""
    left, right = st.columns(2, vertical_alignment="bottom")
    with left:
        at = choose_token(length)
    with right:
        direction = st.segmented_control(
            "Attention shown on the tokens",
            DIRECTIONS,
            default=DIRECTIONS[0],
            required=True,
            **linked("direction"),
        )
    found = results.fetch(
        HeadOnText,
        selection.run,
        HeadOnTextParams(
            text=text, head=selection.cell, skip=selection.skip, around=kept_around(length, at)
        ),
    )
    if found is None:
        return
    card(
        "tokens",
        partial(head_figure, found),
        found.only("pattern"),
        words.HEAD,
        f"{selection.cell} on the text",
        partial(draw_tokens, found, at, direction, pick_token),
    )
    draw_row(selection, found.select(query=at))


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    st.title(PLACE.title)
    contents_here()
    st.markdown(
        f"What every head of **{plain(selection.run.model.name)}** does on a text of yours, and "
        "how much of it is position."
    )
    text = choose_text()
    if text is None:
        return
    asked = OwnTextParams(text=text, skip=selection.skip)
    found = results.fetch(OwnText, selection.run, asked)
    if found is None:
        return
    card(
        "heads",
        partial(all_heads_figure, found),
        found,
        words.HEADS,
        "Every head on the text",
        partial(draw_patterns, found, selection.cell),
    )
    draw_head(selection, text, len(found.words("tokens")))
