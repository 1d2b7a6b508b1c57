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
from pages.shared.selection.links import OFFERED, PAGE, waits

FAR: Final = "far-from-rest"
KEPT: Final = "widgets-in-rest"


def is_far() -> bool:
    """Tell whether the rest of the page waits until the reader comes near."""
    return bool(st.session_state.get(FAR)) and not embedded()


def note_far(*, far: bool) -> None:
    """Note whether the reader is far from the rest of the page."""
    st.session_state[FAR] = far


def open_at_top(page: str) -> None:
    """Note that a page is opened at its top if another one was open; call it before `read_link`."""
    if st.session_state.get(PAGE, page) != page:
        note_far(far=True)
        st.session_state[KEPT] = []


@contextmanager
def rest() -> Iterator[bool]:
    """Tell whether what follows is wanted now; if not, the browser asks for it in time.

    The widgets in it keep their values while they are not drawn.
    """
    state = st.session_state
    with st.container(key="rest"):
        if is_far():
            for key in state.get(KEPT, []):
                if key in state:
                    state[key] = state[key]
            draw_rest("near", {}, on_near_change=lambda: note_far(far=False))
            waits()
            yield False
            return
        above, state[OFFERED] = state.get(OFFERED, {}), {}
        try:
            yield True
        finally:
            state[KEPT] = list(state[OFFERED])
            state[OFFERED] = above | state[OFFERED]
