"""What a positional kernel is, for those new to it; folded away once read.

Whether it is folded is kept in the reader's own browser.
"""

from pathlib import Path

import streamlit as st

from pages.shared.selection.selection import select_model
from poskernel_core.models.curated import BUNDLED_MODELS

SENTENCES = (
    "An attention head chooses where to look by two things at once: what the tokens say, and where "
    "they stand.",
    "Average a head's keys over many windows, so that only position is left, and what remains of "
    "its attention is its <b>positional kernel</b>: how much it would look at each earlier token "
    "if all content were alike.",
    "Each cell below is one head of a model with its kernel, dark where the kernel holds few "
    "tokens "
    "and yellow where it holds many: click one to see it large, then try another model or measure.",
)
_HERE = Path(__file__).parent
_COMPONENT = st.components.v2.component(
    "introduction",
    html=f"<details open><summary>New here? What a positional kernel is</summary>"
    f"<p>{' '.join(SENTENCES)}</p></details>",
    css=(_HERE / "introduction.css").read_text("utf-8"),
    js=(_HERE / "introduction.js").read_text("utf-8"),
)


def introduce() -> None:
    """Draw the introduction, open until the reader folds it."""
    _COMPONENT(key="introduction")


def offer_small_models() -> None:
    """Lead from results alone to models that are computed while one looks."""
    with st.container(horizontal=True, vertical_alignment="center", key="small-models"):
        st.markdown("Small models that compute live here:", width="content")
        for name in BUNDLED_MODELS:
            st.button(
                name, key=f"show-{name}", type="tertiary", on_click=select_model, args=(name,)
            )
