"""The window of positions of a map that is shown larger."""

import streamlit as st

from pages.shared.choices.fit import fitted, fitted_index

SIZES = (16, 32, 50, 64)
DEFAULT = 50


def choose_zoom(length: int) -> tuple[int, int] | None:
    """Draw the controls; return the first position and one past the last; None for short texts."""
    sizes = [size for size in SIZES if size < length]
    if not sizes:
        return None
    left, right = st.columns([1, 3], vertical_alignment="bottom")
    size = left.selectbox(
        "Window (positions)",
        **fitted_index("zoomsize", sizes, DEFAULT if DEFAULT in sizes else sizes[-1]),
    )
    last = length - size
    first = right.slider("Window begins at position", **fitted("zoom", range(last + 1), 0))
    return first, first + size
