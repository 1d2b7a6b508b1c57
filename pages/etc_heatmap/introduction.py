"""A foldable introduction to positional kernels; the browser remembers whether it is folded."""

from pathlib import Path

import streamlit as st

from pages.shared.selection.links import write
from poskernel_core.models.curated import BUNDLED_MODELS

SENTENCES = (
    "An attention head attends to a token for its content and for its position.",
    "Average the head's keys over many windows, and only position is left. The attention to these "
    "mean keys is the head's <b>positional kernel</b>: how much the head would attend to each "
    "earlier token if all tokens had the same content.",
    "Each cell below is a head of the model with its kernel. The cell is dark if the kernel "
    "covers few tokens, and yellow if it covers many. Click a cell to see its kernel large, then "
    "try another model or measure.",
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
    """Offer small models that compute at once, if the selected one has stored results only."""
    with st.container(horizontal=True, vertical_alignment="center", key="small-models"):
        st.markdown("Small models that compute live here:", width="content")
        for name in BUNDLED_MODELS:
            st.button(
                name, key=f"show-{name}", type="tertiary", on_click=write, args=("model", name)
            )
