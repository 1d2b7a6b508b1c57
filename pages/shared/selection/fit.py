"""Widgets bound to the address: a value that no longer fits is moved, and the URL follows.

The default is passed on every run, because the browser omits from the URL any value equal to the
default. Each function returns a widget's parameters, what it offers among them.
"""

from collections.abc import Iterable
from typing import Any, Final

import streamlit as st

from pages.shared.cards.embed import note_parameter
from pages.shared.selection.links import note_offered, write

DRAWN: Final = "widgets-drawn"


def linked(
    key: str, options: Iterable[Any] | None = None, *, ends: tuple[float, float] | None = None
) -> dict[str, Any]:
    """Return what binds a widget to a parameter of the address; both are named ``key``.

    ``ends`` are the least and the largest number of a widget without options.
    """
    note_parameter(key)
    offered = None if options is None else list(options)
    note_offered(key, offered, ends)
    found: dict[str, Any] = {"key": key, "bind": "query-params"}
    if ends is not None:
        found |= {"min_value": ends[0], "max_value": ends[1]}
    return found if offered is None else found | {"options": offered}


def choose_one(
    label: str, options: Iterable[str], key: str, *, place: Any = st, default: str = "", **more: Any
) -> str:
    """Draw buttons of which one is always pressed, at first the ``default`` or the first option."""
    words = list(options)
    asked = linked(key, words) | {"default": default or words[0], "required": True}
    chosen: str = place.segmented_control(label, **asked | more)
    return chosen


def fitted(key: str, options: Any, default: Any) -> dict[str, Any]:
    """Return what a slider takes, and move the reader's choice to the nearest that fits.

    If the default changes (with another context, say), a reader who has chosen nothing gets the new
    default, and the URL follows. A ``range`` is that of a slider over numbers.
    """
    value = st.session_state.get(key, default)
    nearest = value if value in options else min(options, key=lambda each: abs(each - value))
    _write(key, value, nearest, default)
    if isinstance(options, range):
        return linked(key, ends=(options[0], options[-1])) | {"value": default}
    return linked(key, options) | {"value": default}


def fitted_index(key: str, options: list[Any], default: Any) -> dict[str, Any]:
    """Return what a select box takes; a choice that no longer fits becomes the default."""
    value = st.session_state.get(key, default)
    _write(key, value, value if value in options else default, default)
    return linked(key, options) | {"index": options.index(default)}


def _write(key: str, value: Any, fitted: Any, default: Any) -> None:
    """Write a widget's value before it is drawn, if the value or its default has changed."""
    earlier = st.session_state.get(f"default-{key}", default)
    st.session_state[f"default-{key}"] = default
    if earlier != default or fitted != value:
        write(key, default if value == earlier else fitted)


def fitted_text(key: str, default: str) -> dict[str, Any]:
    """Return what a text field takes; every text fits."""
    value = st.session_state.get(key, default)
    _write(key, value, value, default)
    return linked(key) | {"value": default}


def fitted_list(key: str, options: list[str], default: list[str]) -> dict[str, Any]:
    """Return what a multiselect takes; choices that no longer fit are left out."""
    value = st.session_state.get(key, default)
    _write(key, value, [each for each in value if each in options], default)
    return linked(key, options) | {"default": default}


def fitted_span(key: str, first: int, last: int) -> dict[str, Any]:
    """Return what a slider with two ends takes; a span is cut to fit."""
    default = (first, last)
    value = st.session_state.get(key, default)
    low, high = (min(max(end, first), last) for end in value)
    _write(key, value, (low, high) if low < high else default, default)
    return linked(key, ends=default) | {"value": default}


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
