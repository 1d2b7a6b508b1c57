"""The rotary spectrum: the wavelengths by which rotary heads use position."""

from functools import partial
from typing import Any, Final

import streamlit as st

from pages.shared.cards.card import card
from pages.shared.cards.show import show
from pages.shared.choices.fit import choose_one, fitted, fitted_flag, fitted_index
from pages.shared.grid.measure_grid import draw_heads, head_texts
from pages.shared.grid.measures import MEASURES
from pages.shared.jobs import results
from pages.shared.selection.head_choice import offer_strongest
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from pages.shared.tables.tables import markdown_table
from poskernel_core.analyses.rotary.bands import (
    CHANGES,
    TREATMENTS,
    ChangedBands,
    ChangedBandsParams,
)
from poskernel_core.analyses.rotary.clocks import clocks_figure
from poskernel_core.analyses.rotary.formulas import BANDS
from poskernel_core.analyses.rotary.kernel import EquivariantKernel, EquivariantParams
from poskernel_core.analyses.rotary.pairs import BandParams
from poskernel_core.analyses.rotary.spec import RotarySpectrum
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted, value_text

OWN: Final = {
    name: measure for name, measure in MEASURES.items() if measure.question is RotarySpectrum
}


def draw_spectrum(head: Result, kernel: Result) -> None:
    """Draw one head's clocks, its amplitudes and phases, usage and mean shares."""
    clocks = head.only("wavelength", "phase", "amplitude", "swing", "dominant_wavelength")
    show("clocks", clocks, figures={"": partial(clocks_figure, head, kernel)})
    left, right = st.columns(2)
    show("amplitudes", head.only("wavelength", "amplitude", "swing", "phase"), column=left)
    show("usage", head.only("wavelength", "usage", "swing", "amplitude"), column=right)
    both = ("query_share", "key_share", "mean_share_queries", "mean_share_keys")
    show("shares", head.only("wavelength", *both))


def draw_kernels(kernel: Result, *, log_x: bool) -> None:
    """Draw one head's logit and kernels by offset, and a table of the effect of each band."""
    left, right = st.columns(2)
    show("logit", kernel.only("positional_logit", "band_logit"), column=left, log_x=log_x)
    drawn = kernel.only(
        "positional_logit",
        "equivariant_kernel",
        "mean_key_kernel",
        "observed",
        "kernel_distance",
        "equivariant_attention_distance",
        "attention_distance",
    )
    show("equivariant", drawn, column=right, log_x=log_x)
    drawn = kernel.only(
        "positional_logit", "equivariant_kernel", "without_band", "etc", "band_etc", "band_distance"
    )
    show("without", drawn, log_x=log_x)
    _draw_bands(kernel)


def _draw_bands(kernel: Result) -> None:
    """Draw a table of the kernel without each band."""
    rows: list[tuple[str, ...]] = [("all wavelengths", value_text(kernel, "etc"), "")]
    for place, name in enumerate(BANDS):
        band = kernel.select(band=place)
        numbers = (value_text(band, value) for value in ("band_etc", "band_distance"))
        rows.append((f"without {name} ones", *numbers))
    query = kernel.params["query"]
    header = (f"Kernel at n = {query}", "Effective token count", "TV distance to the whole kernel")
    markdown_table(header, rows)


def draw_all_heads(result: Result, selection: Selection) -> None:
    """Draw the grid of all heads by a measure of the rotary spectrum."""
    title = st.selectbox("Measure", **fitted_index("rotaryby", OWN))
    measure = OWN[title or next(iter(OWN))]
    name = measure.declared.value
    measured = result.only(name)

    def draw() -> None:
        st.markdown(measure.declared.reading)
        draw_heads(
            measure.shade(measured, measured.values[name].astype(float)),
            head_texts(measured, name, measure.declared.title),
            measure.declared.unit,
            selection,
            "rotary-grid",
        )

    card("all-heads", None, measured, measure.words(), "All heads", draw)


SHORT: Final = 16
SHORTS: Final = (4, 8, 12, 16, 24, 32, 64, 128)


def choose_bands(selection: Selection) -> dict[str, Any]:
    """Draw the choice of the bands of wavelengths."""
    context = selection.run.context
    left, right = st.columns(2)
    shorts = [wavelength for wavelength in SHORTS if wavelength <= context] or [context]
    default = min(SHORT, shorts[-1])
    short = left.select_slider(
        "Short wavelengths: up to (tokens)",
        help="a pair with a wavelength of 16 tokens turns once in 16 tokens",
        **fitted("short", shorts, default, (1, context)),
    )
    doubled = [context * 2**power for power in range(-3, 7)]
    longs = [wavelength for wavelength in doubled if wavelength >= short]
    long = right.select_slider(
        "Middle wavelengths: up to (tokens)",
        help="by default the context; longer wavelengths turn less than once in it",
        **fitted("long", longs, context, (short, longs[-1])),
    )
    return {"short": float(short), "long": None if long == context else float(long)}


LAYER, HEAD = "the selected layer", "the selected head"


def draw_changes(selection: Selection, bands: dict[str, Any]) -> None:
    """Draw the effect of changed bands, if asked for, since the model runs again."""
    st.subheader("What is lost without a band?", anchor="changes")
    if not st.toggle(
        "Run the model with each band frozen, and removed, on 8 windows of the corpus",
        **fitted_flag("changed"),
    ):
        return
    where = choose_one("Changed in", ("all heads", LAYER, HEAD), "changedin")
    params = ChangedBandsParams(
        head=selection.cell,
        heads=selection.cell if where == HEAD else "",
        layers=f"{selection.layer}" if where == LAYER else "",
        **bands,
    )
    result = results.fetch(ChangedBands, selection.run, params)
    if result is None:
        return
    show("changed-loss", result.only("loss", "loss_change"))
    patterns = selection.of(result).only(
        "profile", "pattern_distance", "previous_mass", "previous_mass_change"
    )
    changed = partial(figure_of, patterns, log_x=True)
    figures = {f"changed-{name}": partial(changed, treatment=name) for name in TREATMENTS}

    title, table = f"Attention of {selection.cell}", partial(_draw_table, patterns)
    show("changed-pattern", patterns, title, figures=figures, below=table)


def _draw_table(head: Result) -> None:
    """Draw a table of the effect of each change on the head."""
    rows = []
    for place, change in enumerate(CHANGES):
        run = head.select(change=place)
        names = ("pattern_distance", "previous_mass", "previous_mass_change")
        texts = [value_text(run, name) for name in names]
        rows.append([change, *(texts if place else ["", texts[1], ""])])
    header = ("Run", "Distance of the pattern (TV)", "Attention to the previous token", "Change")
    markdown_table(header, rows)


PLACE = Place(
    "Spectrum",
    "How a rotary head measures distance: each pair of its dimensions is a clock with its "
    "own speed, and the score is their sum.",
    needs="rotary",
    questions=("rotary-spectrum", "equivariant-kernel", "changed-bands"),
)

SHORT_BAND = 0


def draw_head(selection: Selection, result: Result, kernels: Result) -> None:
    """Draw the selected head: its numbers, its spectrum, its kernels."""
    offer_strongest(
        kernels.values["band_distance"][..., SHORT_BAND], selection, "user of short wavelengths"
    )
    one = selection.of(result)
    kernel = selection.of(kernels)
    st.subheader(f"{selection.cell} at query position {selection.query}", anchor="head")
    st.markdown(_numbers(one, kernel))
    draw_spectrum(one, kernel)
    draw_kernels(kernel, log_x=st.toggle("Offsets on a log axis", **fitted_flag("logd", True)))


def _numbers(one: Result, kernel: Result) -> str:
    """Return the head's numbers in sentences."""
    return (
        f"Dominant wavelength: "
        f"**{counted(value_text(one, 'dominant_wavelength'), 'token')}**. "
        f"Mean share of queries {value_text(one, 'mean_share_queries')}, of keys "
        f"{value_text(one, 'mean_share_keys')}. The equivariant kernel lies at a TV distance of "
        f"{value_text(kernel, 'kernel_distance')} from the positional kernel and of "
        f"{value_text(kernel, 'equivariant_attention_distance')} from the observed attention."
    )


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    bands = choose_bands(selection)
    params = BandParams(skip=selection.skip, **bands)
    per_query = EquivariantParams(skip=selection.skip, query=selection.query, **bands)
    result = results.fetch(RotarySpectrum, selection.run, params, (EquivariantKernel, per_query))
    if result is None:
        return
    with st.container():  # so that widgets below keep their places
        if kernels := results.fetch(EquivariantKernel, selection.run, per_query):
            draw_head(selection, result, kernels)
    draw_all_heads(result, selection)
    draw_changes(selection, bands)
