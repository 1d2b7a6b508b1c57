"""The cards of the page on rotary spectra: one head's clocks and kernels, and all heads."""

from functools import partial
from typing import Final

import streamlit as st

from pages.rotary_spectrum import captions as words
from pages.shared.cards.card import card
from pages.shared.grid.measure_grid import draw_heads, head_texts
from pages.shared.selection.fit import linked
from pages.shared.selection.selection import Selection
from pages.shared.tables.tables import markdown_table
from poskernel_core.analyses.rotary.clocks import clocks_figure
from poskernel_core.analyses.rotary.figures import (
    amplitudes_figure,
    equivariant_curve,
    logit_figure,
    shares_figure,
    spectrum_figure,
    usage_figure,
    without_figure,
)
from poskernel_core.analyses.rotary.formulas import BANDS
from poskernel_core.analyses.rotary.spec import RotarySpectrum
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import value_and_bias
from poskernel_core.plotting.shades import linear, logarithmic

MEASURES: Final = {measure.title: measure for measure in RotarySpectrum.measures}


def draw_spectrum(head: Result, kernel: Result) -> None:
    """Draw one head's clocks, its amplitudes and phases, usage and mean shares."""
    clocks = head.only("wavelength", "phase", "amplitude", "swing")
    card("clocks", partial(clocks_figure, head, kernel), clocks, words.CLOCKS)
    left, right = st.columns(2)
    with left:
        shown = head.only("wavelength", "amplitude", "swing", "phase")
        card("amplitudes", partial(amplitudes_figure, shown), shown, words.AMPLITUDES)
    with right:
        shown = head.only("wavelength", "usage", "swing", "amplitude")
        card("usage", partial(usage_figure, shown), shown, words.USAGE)
    shown = head.only(
        "wavelength", "query_share", "key_share", "mean_share_queries", "mean_share_keys"
    )
    card("shares", partial(shares_figure, shown), shown, words.SHARES)


def draw_kernels(kernel: Result, *, log_x: bool) -> None:
    """Draw one head's logit and kernels by offset, and a table of the effect of each band."""
    left, right = st.columns(2)
    with left:
        shown = kernel.only("positional_logit", "band_logit")
        card("logit", partial(logit_figure, shown, log_x=log_x), shown, words.LOGIT)
    with right:
        shown = kernel.only(
            "positional_logit",
            "equivariant_kernel",
            "mean_key_kernel",
            "observed",
            "kernel_distance",
            "equivariant_attention_distance",
            "attention_distance",
        )
        figure = partial(equivariant_curve, shown, log_x=log_x)
        card("equivariant", figure, shown, words.EQUIVARIANT)
    shown = kernel.only(
        "positional_logit", "equivariant_kernel", "without_band", "etc", "band_etc", "band_distance"
    )
    card("without", partial(without_figure, shown, log_x=log_x), shown, words.WITHOUT)
    _draw_bands(kernel)


def _draw_bands(kernel: Result) -> None:
    """Draw a table of the kernel without each band."""
    rows: list[tuple[str, ...]] = [("all wavelengths", value_and_bias(kernel, "etc"), "")]
    for place, name in enumerate(BANDS):
        band = kernel.select(band=place)
        numbers = (value_and_bias(band, value) for value in ("band_etc", "band_distance"))
        rows.append((f"without {name} ones", *numbers))
    query = kernel.params["query"]
    header = (f"Kernel at n = {query}", "ETC (tokens)", "TV distance to the whole kernel")
    markdown_table(header, rows)


def draw_all_heads(found: Result, selection: Selection) -> None:
    """Draw the grid of all heads by a measure of the rotary spectrum."""
    title = st.selectbox("Colour heads by", **linked("rotaryby", MEASURES))
    measure = MEASURES[title or next(iter(MEASURES))]
    shown = found.only(measure.value)
    values = shown.values[measure.value].astype(float)
    shade = logarithmic(values) if measure.scale == "log" else linear(values, 1.0)

    def draw() -> None:
        st.markdown(measure.reading)
        texts = head_texts(shown, measure.value, measure.title)
        draw_heads(shade, texts, measure.unit, selection, "rotary-grid")

    card("all-heads", partial(spectrum_figure, found), shown, words.GRID, "All heads", draw)
