"""A text whose tokens are coloured by a number each."""

import html

import numpy as np
import streamlit as st

from poskernel_core.plotting.layout import visible
from poskernel_core.plotting.palette import BLUE, CATEGORICAL, fade

MOST_SHOWN = 1024
BELOW, ABOVE = BLUE, CATEGORICAL[4]
FULL_OPACITY = 0.65  # opacity, so that the page's own ink reads on it, light or dark
PERCENTILE = 98
LOOK = "border-radius:3px;padding:1px 2px;white-space:pre-wrap;"


def coloured_text(words: list[str], values: np.ndarray, meaning: str) -> None:
    """Draw a text, its tokens blue below 0 and orange above; hover shows position and number."""
    shown = words[:MOST_SHOWN]
    there = np.abs(values[np.isfinite(values)])
    reach = float(np.percentile(there, PERCENTILE)) if there.size else 1.0
    colours = [
        fade(
            BELOW if value < 0 else ABOVE,
            round(min(abs(value) / (reach or 1.0), 1.0) * FULL_OPACITY, 3),
        )
        for value in np.nan_to_num(values).tolist()
    ]
    cells = "".join(
        _token(place, word, colours[place], float(values[place]), meaning)
        for place, word in enumerate(shown)
    )
    cut = f" The first {MOST_SHOWN} tokens." if len(words) > MOST_SHOWN else ""
    st.caption(
        f"Tokens by their {meaning}: blue below 0, orange above, full colour at {reach:.2g}.{cut}"
    )
    st.html(
        "<div style='line-height:1.9;font-size:0.9rem;max-height:22rem;overflow-y:auto' "
        f"tabindex='0' role='region' aria-label='Text by {html.escape(meaning)}'>{cells}</div>"
    )


def _token(place: int, word: str, colour: str, value: float, meaning: str) -> str:
    number = "none" if np.isnan(value) else f"{value:.3g}"
    title = html.escape(f"{visible(word)} at {place}: {meaning} {number}")
    look = LOOK if np.isnan(value) else f"{LOOK}background:{colour}"
    broken = "<br>" * word.count("\n")
    text = html.escape(word.replace("\n", "⏎"))
    return f"<span title='{title}' style='{look}'>{text}</span>{broken}"
