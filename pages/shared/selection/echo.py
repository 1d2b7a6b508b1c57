"""What the widgets held when the page was drawn, and whether the browser has heard of it.

A callback that writes a widget's value, as a click on a head does, reaches the browser with the
page that follows. What the browser sends before, as a part of the page does that reruns on a timer,
still carries the older value, and Streamlit takes it.
"""

import streamlit as st

DRAWN, WAITED = "widgets-drawn", "widgets-waited"
MAX_TICKS = 6
"""Ticks after which a value that never comes is no longer waited for."""


def note_drawn() -> None:
    """Keep what every widget holds; call it when the whole page has been drawn."""
    st.session_state[WAITED] = 0
    st.session_state[DRAWN] = {
        key: value
        for key, value in st.session_state.items()
        if str(key).isalnum() and isinstance(value, str | int | float | list | tuple)
        if not isinstance(value, bool)  # a button is pressed for one run only
    }


def is_behind() -> bool:
    """Tell, in a part of the page that ticks, whether the browser sent values older than the page.

    After some ticks in a row the answer is no: what was drawn will not come any more.
    """
    state = st.session_state
    drawn = state.get(DRAWN, {})
    behind = any(state.get(key, value) != value for key, value in drawn.items())
    state[WAITED] = state.get(WAITED, 0) + 1 if behind else 0
    return behind and state[WAITED] <= MAX_TICKS
