"""The rotary spectrum: the wavelengths by which rotary heads use position."""

from typing import Any

import streamlit as st

from pages.rotary_spectrum.changes import draw_changes
from pages.rotary_spectrum.controls import choose_bands
from pages.rotary_spectrum.sections import draw_all_heads, draw_kernels, draw_spectrum
from pages.shared.jobs import results
from pages.shared.selection.fit import linked
from pages.shared.selection.head_choice import offer_strongest
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.rotary.kernel import EquivariantKernel, EquivariantParams
from poskernel_core.analyses.rotary.spec import RotarySpectrum, SpectrumParams
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted, rounded, value_text

PLACE = Place(
    "Spectrum",
    "How a rotary head measures distance: each pair of its dimensions is a clock with its "
    "own speed, and the score is their sum.",
    needs="rotary",
    questions=("rotary-spectrum", "equivariant-kernel", "changed-bands"),
)

SHORT_BAND = 0


def draw_head(selection: Selection, found: Result, kernels: Result) -> None:
    """Draw the selected head: its numbers, its spectrum, its kernels."""
    offer_strongest(
        kernels.values["band_distance"][..., SHORT_BAND], selection, "user of short wavelengths"
    )
    one = selection.of(found)
    kernel = selection.of(kernels)
    st.subheader(f"{selection.cell} at query position {selection.query}", anchor="head")
    st.markdown(_numbers(one, kernel))
    draw_spectrum(one, kernel)
    draw_kernels(kernel, log_x=st.toggle("Offsets on a log axis", True, **linked("logd")))


def _numbers(one: Result, kernel: Result) -> str:
    """Return the head's numbers in sentences."""
    return (
        f"Dominant wavelength: "
        f"**{counted(rounded(float(one.values['dominant_wavelength'])), 'token')}**. "
        f"Mean share of queries {value_text(one, 'mean_share_queries')}, of keys "
        f"{value_text(one, 'mean_share_keys')}. The equivariant kernel lies at a TV distance of "
        f"{value_text(kernel, 'kernel_distance')} from the positional kernel and of "
        f"{value_text(kernel, 'equivariant_attention_distance')} from the observed attention. "
        f"The positional kernel lies at {value_text(kernel, 'attention_distance')} from the "
        "observed attention."
    )


def draw_page(selection: Selection, bands: dict[str, Any]) -> None:
    """Draw the results for the chosen bands."""
    asked = SpectrumParams(skip=selection.skip, **bands)
    found = results.fetch(RotarySpectrum, selection.run, asked)
    if found is None:
        return
    per_query = EquivariantParams(skip=selection.skip, query=selection.query, **bands)
    with st.container():  # so that widgets below keep their places
        kernels = results.fetch(EquivariantKernel, selection.run, per_query)
        if kernels is not None:
            draw_head(selection, found, kernels)
    draw_all_heads(found, selection)
    draw_changes(selection, bands)


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    draw_page(selection, choose_bands(selection))
