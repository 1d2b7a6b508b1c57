"""Where the queries come from: controls that give the source parameters of a kernel."""

from typing import Final, Literal, NotRequired, TypedDict

import streamlit as st

from poskernel_core.common.specs import RunSpec
from poskernel_core.data import texts

QueriesFrom = Literal["mean", "text", "token"]
SOURCES: Final[dict[str, QueriesFrom]] = {
    "sampled windows": "mean",
    "one text": "text",
    "one token": "token",
}
MAX_TYPED = 8000
OWN = "my own text"
USE = "its n-th token gives the query at position n"


class TextChoice(TypedDict, total=False):
    """One text, typed or by its name, as parameters."""

    text: str
    text_item: str


class SourceChoice(TextChoice):
    """Where the queries come from, as parameters."""

    source: QueriesFrom
    token: NotRequired[str]


def choose_source(run: RunSpec) -> SourceChoice | None:
    """Draw the controls; return the parameters, or None while a text is still to be given."""
    chosen = st.segmented_control(
        "Queries from",
        list(SOURCES),
        default="sampled windows",
        key="source",
        bind="query-params",
        required=True,
    )
    source = SOURCES[chosen]
    if source == "text":
        text = choose_text()
        return None if text is None else {"source": "text", **text}
    if source == "token":
        token = st.text_input(
            "Token",
            " the",
            key="token",
            bind="query-params",
            max_chars=64,
            help="exactly one token of the model, leading space included; it replaces the last "
            "token of sixty windows, so that its query is seen in real contexts",
        )
        return {"source": "token", "token": token}
    return {"source": "mean"}


def choose_text(use: str = USE) -> TextChoice | None:
    """Draw the choice of one text; return it as parameters, or None while it is to be given.

    ``use`` says what the text is for.
    """
    item = st.selectbox("Text", [*texts.items("bible"), OWN], key="item", bind="query-params")
    if item != OWN:
        return {"text_item": item}
    text = st.text_area(
        "Your text",
        key="text",
        bind="query-params",
        max_chars=MAX_TYPED,
        height=160,
        placeholder="Type or paste a text, longer than the query position.",
    )
    if not text.strip():
        st.info(f"Type or paste a text: {use}.")
        return None
    return {"text": text[:MAX_TYPED]}
