"""The controls of moved attention: the head, rows and keys, the output."""

from typing import Any, Final

import streamlit as st

from pages.shared.selection.fit import fitted_index, fitted_list, linked
from pages.shared.selection.links import write
from pages.shared.selection.selection import Selection
from poskernel_core.data.moves import fitting, words_of

CHANGED_STAGES: Final[dict[str, str]] = {
    "after the softmax": "pattern",
    "before the softmax": "scores",
}
SCOPES: Final[dict[str, str]] = {
    "the head's output": "head",
    "the whole layer's attention output": "layer",
}


def choose_move(selection: Selection, defaults: dict[str, Any]) -> dict[str, Any]:
    """Draw the head, its moves and the change of its output; return them as parameters."""
    cells = selection.located.geometry.cells
    moves = list(dict.fromkeys([*defaults["moves"], *st.session_state.get("moves", [])]))
    one, two, three = st.columns([3, 6, 4], vertical_alignment="bottom")
    params: dict[str, Any] = {
        "change": "move",
        "edited": one.selectbox(
            "Head that is changed", **fitted_index("edited", cells, defaults["edited"])
        ),
        "moves": ", ".join(
            two.multiselect(
                "Rows and their new keys",
                accept_new_options=True,
                placeholder="add a move below, or type one such as 36>34",
                help="row>key: words of the prompt (pirate>ninja), or positions (36>34)",
                **fitted_list("moves", moves, defaults["moves"]),
            )
        ),
        "stage": choose_stage(three, defaults),
    }
    scores = params["stage"] == "scores"
    one, *more, last = st.columns([1, 1, 2] if scores else [1, 3], vertical_alignment="bottom")
    params["scale"] = one.number_input(
        "Multiply by", step=0.5, value=defaults["scale"], **linked("scale", ends=(-10.0, 10.0))
    )
    for two in more:
        params["strength"] = two.number_input(
            "Nats above the largest score",
            step=1.0,
            value=defaults["strength"],
            **linked("strength", ends=(0.0, 100.0)),
        )
    scope = last.selectbox(
        "What is multiplied",
        index=list(SCOPES).index(defaults["scope"]),
        **linked("scope", SCOPES),
    )
    params["scope"] = SCOPES[scope]
    return params


def offer_words(prompt: str) -> None:
    """Draw the choice of a move among the words of the prompt."""
    words = words_of(prompt)
    if not words:
        return
    one, two, three = st.columns([5, 5, 2], vertical_alignment="bottom")
    last = max(place for place, word in enumerate(words) if word.isalnum() or not place)
    row = one.selectbox("Add a move: the attention at", words, index=last, key="moverow")
    before = words[: words.index(row) + 1] if row in words else words
    key = two.selectbox("goes to", before, key="movekey")
    three.button("Add", key="addmove", width="stretch", on_click=_add_move, args=(f"{row}>{key}",))


def _add_move(move: str) -> None:
    """Add a move. A callback."""
    write("moves", list(dict.fromkeys([*st.session_state["moves"], move])))


def keep_fitting() -> None:
    """Remove moves whose words the new prompt does not contain. A callback."""
    if "moves" in st.session_state:
        write("moves", fitting(st.session_state["moves"], st.session_state["prompt"]))


def choose_stage(place: Any, defaults: dict[str, Any]) -> str:
    """Draw the choice between scores and pattern."""
    words = list(CHANGED_STAGES)
    index = words.index(defaults["stage"])
    return CHANGED_STAGES[place.selectbox("Changed", index=index, **linked("stage", words))]
