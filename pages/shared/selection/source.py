"""The controls for the source of a kernel's queries."""

from typing import Any, Final

import streamlit as st

from pages.shared.cards.plain import plain
from pages.shared.choices.fit import choose_one, fitted_index, fitted_text
from poskernel_core.common.specs import DEFAULT_TOKEN, ModelSpec
from poskernel_core.data import texts
from poskernel_core.models.tokenizers import usual_word
from poskernel_core.plotting.layout import quoted

SOURCES: Final[dict[str, str]] = {
    "sampled windows": "mean",
    "one text": "text",
    "one token": "token",
}
MAX_TYPED = 8000
OWN = "my own text"
USE = "its n-th token gives the query at position n"


def choose_source(model: ModelSpec) -> dict[str, Any] | None:
    """Draw the controls; return the parameters, or None while the text is empty."""
    source = SOURCES[choose_one("Queries from", SOURCES, "source")]
    if source == "text":
        text = choose_text()
        return None if text is None else {"source": "text", **text}
    if source == "token":
        help_ = (
            "exactly one token of the model, with its leading space; it replaces the last token "
            "of sixty windows"
        )
        return {"source": "token", "token": named_token(st, model, "Token", help_)}
    return {"source": "mean"}


def named_token(place: Any, model: ModelSpec, label: str, about: str) -> str:
    """Draw a field for a token; empty, it is the default, or what the model has in its place."""
    typed = place.text_input(
        label,
        placeholder=f"empty: {quoted(DEFAULT_TOKEN)}",
        help=about,
        **fitted_text("token", DEFAULT_TOKEN, 64),
    )
    if typed not in ("", DEFAULT_TOKEN):
        return typed
    token = usual_word(model)
    if token != DEFAULT_TOKEN:
        place.caption(
            plain(f"{quoted(DEFAULT_TOKEN)} is no token of this model: {quoted(token)} is taken.")
        )
    return token


def choose_text(use: str = USE) -> dict[str, Any] | None:
    """Draw the choice of one text; return it as parameters, or None while it is empty.

    ``use`` says what the text is for.
    """
    item = st.selectbox("Text", **fitted_index("item", [*texts.items("bible"), OWN]))
    if item != OWN:
        return {"text_item": item}
    text = st.text_area(
        "Your text",
        height=160,
        placeholder="Type or paste a text longer than the query position.",
        **fitted_text("typed", most=MAX_TYPED),
    )
    if not text.strip():
        st.info(f"Type or paste a text: {use}.")
        return None
    return {"text": text[:MAX_TYPED]}
