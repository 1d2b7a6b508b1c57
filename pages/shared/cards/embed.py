"""One card alone, for a frame in another page: ``?embed=card:kernel`` in the address of any page.

The page runs as always until it has drawn the card, and then ends. The card, and before it what
stands in for it (a button, a progress, an error), go to one place; ``style.css`` hides all else.

Streamlit reserves ``embed`` and hides it from ``st.query_params``, but passes it on. The values
``true`` and ``false`` are its own.
"""

from contextlib import AbstractContextManager, nullcontext
from html import escape
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from pages.shared import run
from pages.shared.choices.choices import address

EMBED, PREFIX = "embed", "card:"


class CardDrawn(Exception):
    """The card that is drawn alone is there: the page ends; ``app.py`` expects it."""


def begin_embed() -> None:
    """Find out whether the address asks for one card alone."""
    context = get_script_run_ctx()
    given = parse_qs(context.query_string if context else "").get(EMBED, [])
    card_name = next((value for value in given if value.lower() not in ("true", "false")), "")
    if card_name:
        with st.container(key="alone"):
            run.current().frame = run.Frame(card_name, st.container(key="waiting"), st.container())


def embedded() -> bool:
    """Tell whether the page is drawn for one card alone."""
    return run.current().frame is not None


def card_asked() -> str:
    """Return the name of the card that the address asks for; empty if it asks for none."""
    frame = run.current().frame
    return frame.asked.removeprefix(PREFIX) if frame else ""


def asks_for(*cards: str) -> bool:
    """Note cards of the page; tell whether the address asks for one of them alone."""
    frame = run.current().frame
    if frame is None:
        return False
    frame.names |= dict.fromkeys(cards)
    return frame.asked in [PREFIX + card for card in cards]


def place_of(card: str) -> AbstractContextManager[Any] | None:
    """Return where a card is drawn: usually where the page is; in an embed, in the frame or not."""
    frame = run.current().frame
    if frame is None:
        return nullcontext()
    return frame.place if asks_for(card) else None


def in_place_of(*cards: str) -> AbstractContextManager[Any]:
    """Return where to draw what stands in for cards that are not there yet, by default for any."""
    frame = run.current().frame
    if frame is None or (not asks_for(*cards) and cards):
        return nullcontext()
    frame.waits = True
    return frame.waiting


def missing_card() -> str:
    """Return why there is nothing to see at the end of the page; empty if there is something."""
    frame = run.current().frame
    if frame is None or frame.waits:
        return ""
    names = ", ".join(frame.names) or "none with the present selection"
    return f"Expected {EMBED}={PREFIX}NAME with a card of this page ({names}), got {frame.asked!r}."


def whole_page(card: str = "") -> str:
    """Return a link in Markdown to the whole page, at a card."""
    return f"[Open the whole page](?{urlencode(address(), doseq=True)}#{quote(card)})"


def frame_code(address: str, title: str, height: int) -> str:
    """Return the HTML that shows an address in a frame of another page."""
    return (
        f'<iframe src="{escape(address)}" title="{escape(title)}" width="100%" height="{height}" '
        'loading="lazy" style="border: 0"></iframe>'
    )
