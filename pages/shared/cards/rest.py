"""What stands below the first screen of a page: drawn when the reader comes near it.

A link that opens a session has the whole page drawn. Afterwards the reader opens pages at their
top, and chooses heads far from what stands below, which is then left to the browser to ask for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import streamlit as st

from pages.instrument.parts import draw_rest
from pages.shared.cards.embed import embedded
from pages.shared.choices.choices import waits

FAR: Final = "far-from-rest"


def is_far() -> bool:
    """Tell whether the rest of the page waits until the reader comes near."""
    return bool(st.session_state.get(FAR)) and not embedded()


def note_far(*, far: bool) -> None:
    """Note whether the reader is far from the rest of the page."""
    st.session_state[FAR] = far


@contextmanager
def rest() -> Iterator[bool]:
    """Tell whether what follows is wanted now; if not, the browser asks for it in time."""
    with st.container(key="rest"):
        if far := is_far():
            draw_rest("near", {}, on_near_change=lambda: note_far(far=False))
            waits()
        yield not far
