"""The controls of the page on rotary spectra."""

from typing import Any, Final

import streamlit as st

from pages.shared.selection.fit import fitted
from pages.shared.selection.selection import Selection

SHORT: Final = 16
SHORTS: Final = (4, 8, 12, 16, 24, 32, 64, 128)


def choose_bands(selection: Selection) -> dict[str, Any]:
    """Draw the choice of the bands of wavelengths."""
    context = selection.run.context
    left, right = st.columns(2)
    shorts = [each for each in SHORTS if each <= context] or [context]
    default = min(SHORT, shorts[-1])
    short = left.select_slider(
        "Short wavelengths: up to (tokens)",
        shorts,
        help="a pair with a wavelength of 16 tokens turns once in 16 tokens",
        **fitted("short", shorts, default),
    )
    doubled = [context * 2**power for power in range(-3, 7)]
    longs = [each for each in doubled if each >= short]
    long = right.select_slider(
        "Middle wavelengths: up to (tokens)",
        longs,
        help="by default the context; longer wavelengths turn less than once in it",
        **fitted("long", longs, context),
    )
    return {"short": float(short), "long": None if long == context else float(long)}
