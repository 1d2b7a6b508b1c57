"""A note for a first reader that can be closed for good, and small models to compute with."""

import streamlit as st

from pages.instrument.parts import draw_tour
from pages.shared.selection.links import write
from poskernel_core.models.curated import BUNDLED_MODELS


def introduce() -> None:
    """Draw the note, open until the reader folds it."""
    draw_tour("introduction", {})


def offer_small_models() -> None:
    """Offer small models that compute at once, if the selected one has stored results only."""
    with st.container(horizontal=True, vertical_alignment="center", key="small-models"):
        st.markdown(":small[Small models that compute live here:]", width="content")
        for name in BUNDLED_MODELS:
            st.button(
                name, key=f"show-{name}", type="tertiary", on_click=write, args=("model", name)
            )
