"""Widgets bound to the address: a value that no longer fits is moved, and the URL follows.

The default is passed on every run, because the browser omits from the URL any value equal to the
default.
"""

from collections.abc import Iterable
from typing import Any, Final

import streamlit as st

from pages.shared.cards.embed import note_parameter
from pages.shared.selection.links import write

DRAWN: Final = "widgets-drawn"


def linked(key: str) -> dict[str, Any]:
    """Return what binds a widget to a parameter of the address; both are named ``key``."""
    note_parameter(key)
    return {"key": key, "bind": "query-params"}


def choose_one(
    label: str, options: Iterable[str], key: str, *, place: Any = st, default: str = "", **more: Any
) -> str:
    """Draw buttons of which one is always pressed, at first the ``default`` or the first option."""
    words = list(options)
    default = default or words[0]
    chosen: str = place.segmented_control(
        label, words, default=default, required=True, **linked(key) | more
    )
    return chosen


def fitted(key: str, options: Any, default: Any) -> dict[str, Any]:
    """Return the ``value`` of a slider, and move the reader's choice to the nearest that fits.

    If the default changes (with another context, say), a reader who has chosen nothing gets the new
    default, and the URL follows.
    """
    value = st.session_state.get(key, default)
    nearest = value if value in options else min(options, key=lambda each: abs(each - value))
    _write(key, value, nearest, default)
    return linked(key) | {"value": default}


def fitted_index(key: str, options: list[Any], default: Any) -> dict[str, Any]:
    """Return the ``index`` of a select box; a choice that no longer fits becomes the default."""
    value = st.session_state.get(key, default)
    _write(key, value, value if value in options else default, default)
    return linked(key) | {"index": options.index(default)}


def _write(key: str, value: Any, fitted: Any, default: Any) -> None:
    """Write a widget's value before it is drawn, if the value or its default has changed."""
    earlier = st.session_state.get(f"default-{key}", default)
    st.session_state[f"default-{key}"] = default
    if earlier != default or fitted != value:
        write(key, default if value == earlier else fitted)


def fitted_text(key: str, default: str) -> dict[str, Any]:
    """Return the ``value`` of a text field; every text fits."""
    value = st.session_state.get(key, default)
    _write(key, value, value, default)
    return linked(key) | {"value": default}


def fitted_list(key: str, options: list[str], default: list[str]) -> dict[str, Any]:
    """Return the ``default`` of a multiselect; choices that no longer fit are left out."""
    value = st.session_state.get(key, default)
    _write(key, value, [each for each in value if each in options], default)
    return linked(key) | {"default": default}


def fitted_span(key: str, first: int, last: int) -> dict[str, Any]:
    """Return the ``value`` of a slider with two ends; a span is cut to fit."""
    default = (first, last)
    value = st.session_state.get(key, default)
    low, high = (min(max(end, first), last) for end in value)
    _write(key, value, (low, high) if low < high else default, default)
    return linked(key) | {"value": default}


def note_drawn() -> None:
    """Store the value of every widget; call it when the whole page has been drawn."""
    st.session_state[DRAWN] = {
        key: value
        for key, value in st.session_state.items()
        if str(key).isalnum() and isinstance(value, str | int | float | list | tuple)
        if not isinstance(value, bool)  # a button is pressed for one run only
    }


def keep_drawn() -> None:
    """Give widgets the values that the page was drawn with, before a timer draws it again.

    What a callback has written reaches the browser with the next page. If a fragment reruns on a
    timer before that, the browser sends older values, and Streamlit takes them.
    """
    for key, value in st.session_state.get(DRAWN, {}).items():
        if st.session_state.get(key) != value:
            st.session_state[key] = value
