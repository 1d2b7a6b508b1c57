"""Text that is shown as it is (names, typed text, errors), and the boxes for sentences."""

import re
from contextvars import ContextVar

import streamlit as st

from pages.shared.cards.embed import in_place_of
from poskernel_core.common.errors import NO_START

_SAID: ContextVar[set[str] | None] = ContextVar("said", default=None)
"""What say_once has said on the page so far."""

_MARKS = re.compile(r"([\\`*_{}\[\]()#+!|<>~$:-])")


def plain(text: str) -> str:
    """Return a text with its Markdown escaped."""
    return _MARKS.sub(r"\\\1", text)


def capital(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def say_error(sentence: str) -> None:
    """Show a sentence in an error box."""
    with in_place_of():
        told = sentence.replace(NO_START, "turn off 'Start token first'")
        st.error(plain(told), icon=":material/error:")


def say(sentence: str) -> None:
    """Show a sentence in an information box."""
    with in_place_of():
        st.info(plain(sentence), icon=":material/info:")


def nothing_said() -> None:
    """Begin a page: say_once has said nothing yet."""
    _SAID.set(set())


def say_once(sentence: str) -> None:
    """Show an error once per page, because one cause may prevent every figure of the page."""
    said = _SAID.get()
    if said is not None:
        if sentence in said:
            return
        said.add(sentence)
    say_error(sentence)
