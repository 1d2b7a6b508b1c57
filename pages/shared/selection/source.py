"""Where the queries come from: controls that give the source parameters of a kernel."""

from typing import Any, Final

import streamlit as st

from pages.shared.selection.fit import linked
from poskernel_core.common.specs import RunSpec
from poskernel_core.data import texts

SOURCES: Final[dict[str, str]] = {
    "sampled windows": "mean",
    "one text": "text",
    "one token": "token",
}
MAX_TYPED = 8000
OWN = "my own text"
USE = "its n-th token gives the query at position n"


def choose_source(run: RunSpec) -> dict[str, Any] | None:
    """Draw the controls; return the parameters, or None while a text is still to be given."""
    chosen = st.segmented_control(
        "Queries from", list(SOURCES), default="sampled windows", required=True, **linked("source")
    )
    source = SOURCES[chosen]
    if source == "text":
        text = choose_text()
        return None if text is None else {"source": "text", **text}
    if source == "token":
        token = st.text_input(
            "Token",
            " the",
            max_chars=64,
            help="exactly one token of the model, leading space included; it replaces the last "
            "token of sixty windows, so that its query is seen in real contexts",
            **linked("token"),
        )
        return {"source": "token", "token": token}
    return {"source": "mean"}


def choose_text(use: str = USE) -> dict[str, Any] | None:
    """Draw the choice of one text; return it as parameters, or None while it is to be given.

    ``use`` says what the text is for.
    """
    item = st.selectbox("Text", [*texts.items("bible"), OWN], **linked("item"))
    if item != OWN:
        return {"text_item": item}
    text = st.text_area(
        "Your text",
        max_chars=MAX_TYPED,
        height=160,
        placeholder="Type or paste a text, longer than the query position.",
        **linked("text"),
    )
    if not text.strip():
        st.info(f"Type or paste a text: {use}.")
        return None
    return {"text": text[:MAX_TYPED]}
