"""Words that come from elsewhere (names, typed text, error sentences), shown as they are."""

import re
from contextvars import ContextVar

import streamlit as st

_SAID: ContextVar[set[str] | None] = ContextVar("said", default=None)
"""What say_once has said on the page so far."""

_MARKS = re.compile(r"([\\`*_{}\[\]()#+!|<>~$:-])")


def plain(text: str) -> str:
    """Return a text whose Markdown marks are shown, not obeyed."""
    return _MARKS.sub(r"\\\1", text)


def capital(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def say_error(sentence: str) -> None:
    """Show a sentence in the page's error box."""
    st.error(plain(sentence), icon=":material/error:")


def nothing_said() -> None:
    """Begin a page on which say_once has said nothing."""
    _SAID.set(set())


def say_once(sentence: str) -> None:
    """Show a sentence in the error box of the first figure that it keeps from the page.

    A request that is refused for its size is refused for every figure alike.
    """
    said = _SAID.get()
    if said is not None:
        if sentence in said:
            return
        said.add(sentence)
    say_error(sentence)
