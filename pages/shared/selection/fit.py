"""Widgets whose options depend on other choices: what no longer fits is moved, and the URL follows.

A default is given on every run: the browser leaves a value that equals it out of the URL.
"""

from typing import Any

import streamlit as st

from pages.shared.selection.links import write


def linked(key: str) -> dict[str, Any]:
    """Return what binds a widget to a parameter of the address, which is the widget's key too."""
    return {"key": key, "bind": "query-params"}


def fitted(key: str, options: Any, default: Any) -> dict[str, Any]:
    """Return the ``value`` of a slider, and move what is chosen to the nearest that fits.

    The default is given on every run: the browser leaves a value that equals it out of the URL.
    Where it changes (another context), a reader who had chosen nothing follows it, and the value is
    rewritten, so that the URL is as well.
    """
    value = st.session_state.get(key, default)
    nearest = value if value in options else min(options, key=lambda each: abs(each - value))
    _write(key, value, nearest, default)
    return linked(key) | {"value": default}


def fitted_index(key: str, options: list[Any], default: Any) -> dict[str, Any]:
    """Return the ``index`` of a select box likewise; what no longer fits becomes the default."""
    value = st.session_state.get(key, default)
    _write(key, value, value if value in options else default, default)
    return linked(key) | {"index": options.index(default)}


def _write(key: str, value: Any, fitted: Any, default: Any) -> None:
    """Write a widget's value before it is drawn, where it or its default has changed."""
    earlier = st.session_state.get(f"default-{key}", default)
    st.session_state[f"default-{key}"] = default
    if earlier != default or fitted != value:
        write(key, default if value == earlier else fitted)


def fitted_text(key: str, default: str) -> dict[str, Any]:
    """Return the ``value`` of a text field likewise; every text fits."""
    value = st.session_state.get(key, default)
    _write(key, value, value, default)
    return linked(key) | {"value": default}


def fitted_list(key: str, options: list[str], default: list[str]) -> dict[str, Any]:
    """Return the ``default`` of a choice of several likewise; what no longer fits is left out."""
    value = st.session_state.get(key, default)
    _write(key, value, [each for each in value if each in options], default)
    return linked(key) | {"default": default}


def fitted_span(key: str, first: int, last: int) -> dict[str, Any]:
    """Return the ``value`` of a slider with two ends; a span that no longer fits is cut to fit."""
    default = (first, last)
    low, high = st.session_state.get(key, default)
    low, high = min(max(low, first), last), min(max(high, first), last)
    _write(key, st.session_state.get(key, default), (low, high) if low < high else default, default)
    return linked(key) | {"value": default}
