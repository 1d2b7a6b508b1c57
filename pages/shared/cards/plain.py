"""Text that is shown as it is (names, typed text, errors), and the boxes for sentences."""

import re

import streamlit as st

from pages.shared import run
from pages.shared.cards.embed import in_place_of
from poskernel_core.common.errors import NO_START

_MARKS = re.compile(r"([\\`*_{}\[\]()#+!|<>~$:-])")


def plain(text: str) -> str:
    """Return a text with its Markdown escaped."""
    return _MARKS.sub(r"\\\1", text)


def sentence_with_code(text: str) -> str:
    """Return a text with its Markdown escaped, except for code in backticks."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return plain(text)
    return "`".join(part if place % 2 else plain(part) for place, part in enumerate(parts))


def capital(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def say_error(sentence: str) -> None:
    """Show a sentence in an error box."""
    with in_place_of():
        text = sentence.replace(NO_START, "turn off 'Start token first'")
        st.error(sentence_with_code(text), icon=":material/error:")


def say(sentence: str) -> None:
    """Show a sentence in an information box."""
    with in_place_of():
        st.info(sentence_with_code(sentence), icon=":material/info:")


def say_once(sentence: str) -> None:
    """Show an error once per page, because one cause may prevent every figure of the page."""
    if sentence not in run.current().said:
        run.current().said.add(sentence)
        say_error(sentence)
