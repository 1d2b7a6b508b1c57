"""Words that come from elsewhere (names, typed text, error sentences), shown as they are."""

from __future__ import annotations

import re

import streamlit as st

__all__ = ["plain", "say_error"]

_MARKS = re.compile(r"([\\`*_{}\[\]()#+!|<>~$:-])")


def plain(text: str) -> str:
    """Return a text whose Markdown marks are shown, not obeyed."""
    return _MARKS.sub(r"\\\1", text)


def say_error(sentence: str) -> None:
    """Show a sentence in the page's error box."""
    st.error(plain(sentence), icon=":material/error:")
