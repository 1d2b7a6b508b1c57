"""From results alone to models that are computed while one looks."""

import streamlit as st

from pages.shared.selection.selection import select_model
from poskernel_core.models.catalog import BUNDLED_MODELS


def offer_small_models() -> None:
    """Lead from results alone to models that are computed while one looks."""
    with st.container(horizontal=True, vertical_alignment="center", key="small-models"):
        st.markdown("Small models that compute live here:", width="content")
        for name in BUNDLED_MODELS:
            st.button(
                name, key=f"show-{name}", type="tertiary", on_click=select_model, args=(name,)
            )
