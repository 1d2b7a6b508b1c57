"""Heads of any models and runs side by side, and two whole models."""

import streamlit as st

from pages.compare.alike import draw_alike
from pages.compare.models import draw_models
from pages.compare.pinned import draw_chosen, draw_comparison, ready
from pages.shared.cards.plain import say_error
from pages.shared.selection.pins import kept_pins, refusals
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.comparison.pins import MAX_PINS
from poskernel_core.common.errors import PosKernelError

PLACE = Place(
    "Compare",
    "Heads of any models side by side: their kernels, distances and measures.",
    questions=("compare-kernels", "compare-heads", "kernel-replicates", "depth"),
)


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    kept, refused = kept_pins()
    if not kept:
        st.markdown(
            f"No head is pinned yet. Pin up to {MAX_PINS} heads, of any models, revisions and "
            "corpora, here or on the pages «Map» and «Overview», to see their kernels, distances "
            "and measures side by side. The address keeps them."
        )
    refusals(refused)
    draw_chosen(selection, kept)
    try:
        with st.container():  # so that widgets below keep their places
            there = ready(kept, selection)
            if there:
                draw_comparison(selection, there)
        with st.container():
            draw_alike(selection, kept)
        draw_models(selection)
    except PosKernelError as error:
        say_error(str(error))
