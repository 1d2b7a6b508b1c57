"""Whether the browser has received the values that the widgets had when the page was drawn.

When a callback writes a widget's value (after a click on a head, for instance), the browser learns
of it with the next page. If a fragment reruns on a timer before that, the browser sends the old
value, and Streamlit takes it.
"""

import streamlit as st

DRAWN, WAITED = "widgets-drawn", "widgets-waited"
MAX_TICKS = 6
"""Ticks after which the page no longer waits for a value."""


def note_drawn() -> None:
    """Store the value of every widget; call it when the whole page has been drawn."""
    st.session_state[WAITED] = 0
    st.session_state[DRAWN] = {
        key: value
        for key, value in st.session_state.items()
        if str(key).isalnum() and isinstance(value, str | int | float | list | tuple)
        if not isinstance(value, bool)  # a button is pressed for one run only
    }


def is_behind() -> bool:
    """Tell, in a fragment on a timer, whether the browser sent values older than the page.

    After some ticks in a row the answer is no: the new values will not come any more.
    """
    state = st.session_state
    drawn = state.get(DRAWN, {})
    behind = any(state.get(key, value) != value for key, value in drawn.items())
    state[WAITED] = state.get(WAITED, 0) + 1 if behind else 0
    return behind and state[WAITED] <= MAX_TICKS
