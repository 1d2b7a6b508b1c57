"""A note for a first reader that can be closed for good, and small models to compute with."""

from typing import Final

import streamlit as st

from pages.shared.selection.links import write
from poskernel_core.models.curated import BUNDLED_MODELS
from poskernel_core.server import site

STEPS: Final = (
    "A head attends to a token for its content and for its position. Average its keys over many "
    "texts, and only position is left: its **positional kernel**.",
    "Each cell below is a head with its kernel: dark if it covers few tokens, yellow if many.",
    "Point at a cell to see its kernel large. Click it, or walk with the arrow keys: every page "
    "shows the selected head.",
    "Press **/** to go to a head, a measure or a page, and **?** for all keys.",
)


def introduce() -> None:
    """Draw the note, open until the reader folds it; the browser keeps that in a cookie."""
    more = " [The tutorial](docs/tutorial.html) goes on from here." if site() else ""
    steps = (*STEPS[:-1], STEPS[-1] + more)
    folded = st.context.cookies.get("introduction") == "folded"
    with st.expander("New here? What you see, in four steps", not folded, key="introduction"):
        for place, (column, step) in enumerate(zip(st.columns(len(steps)), steps, strict=True)):
            column.markdown(f":small[{place + 1}. {step}]")


def offer_small_models() -> None:
    """Offer small models that compute at once, if the selected one has stored results only."""
    with st.container(horizontal=True, vertical_alignment="center", key="small-models"):
        st.markdown(":small[Small models that compute live here:]", width="content")
        for name in BUNDLED_MODELS:
            st.button(
                name, key=f"show-{name}", type="tertiary", on_click=write, args=("model", name)
            )
