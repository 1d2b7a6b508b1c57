"""The controls of an intervention that moves attention: the head, rows and keys, the output."""

from typing import Any, Final, Literal, Required, TypedDict

import streamlit as st

from pages.interventions.prompt_words import fitting, words_of
from pages.shared.selection.fit import fitted_index, fitted_list
from pages.shared.selection.links import write
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.interventions.spec import Change
from poskernel_core.common.heads import cell_name

URL: Final = "query-params"
Stage = Literal["scores", "pattern"]
CHANGED_STAGES: Final[dict[str, Stage]] = {
    "after the softmax": "pattern",
    "before the softmax": "scores",
}
SCOPES: Final[dict[str, Literal["head", "layer"]]] = {
    "the head's output": "head",
    "the whole layer's attention output": "layer",
}


class ChangeChoice(TypedDict, total=False):
    """What is changed, as parameters; those of the other changes are left out."""

    change: Required[Change]
    group: int
    keep: int
    layer: int | None
    every: int
    layers: str
    stage: Stage
    edited: str
    moves: str
    scale: float
    strength: float
    scope: Literal["head", "layer"]
    heads: str
    embeddings: Literal["tokens", "positions"]


def choose_move(selection: Selection, defaults: dict[str, Any]) -> ChangeChoice:
    """Draw the head, its moves and what becomes of its output; return them as parameters."""
    cells = all_cells(selection)
    moves = list(dict.fromkeys([*defaults["moves"], *st.session_state.get("moves", [])]))
    one, two, three = st.columns([3, 6, 4], vertical_alignment="bottom")
    params: ChangeChoice = {
        "change": "move",
        "edited": one.selectbox(
            "Head that is changed",
            cells,
            key="edited",
            bind=URL,
            **fitted_index("edited", cells, defaults["edited"]),
        ),
        "moves": ", ".join(
            two.multiselect(
                "Rows and their new keys",
                moves,
                key="moves",
                bind=URL,
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
        "Multiply by", -10.0, 10.0, step=0.5, key="scale", bind=URL, value=defaults["scale"]
    )
    for two in more:
        params["strength"] = two.number_input(
            "Nats above the largest score",
            0.0,
            100.0,
            step=1.0,
            key="strength",
            bind=URL,
            value=defaults["strength"],
        )  # fmt: skip
    scope = last.selectbox("What is multiplied", list(SCOPES), key="scope", bind=URL,
                            index=list(SCOPES).index(defaults["scope"]))  # fmt: skip
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
    """Add a move to the present ones; call it in a callback."""
    write("moves", list(dict.fromkeys([*st.session_state["moves"], move])))


def keep_fitting() -> None:
    """Leave out the moves that name words which a new prompt does not have."""
    if "moves" in st.session_state:
        write("moves", fitting(st.session_state["moves"], st.session_state["prompt"]))


def choose_stage(place: Any, defaults: dict[str, Any]) -> Stage:
    """Draw whether scores or the pattern are changed."""
    words = list(CHANGED_STAGES)
    index = words.index(defaults["stage"])
    return CHANGED_STAGES[place.selectbox("Changed", words, index=index, key="stage", bind=URL)]


def all_cells(selection: Selection) -> list[str]:
    """Return the names of all heads of the model."""
    geometry = selection.located.geometry
    layers, heads = range(geometry.n_layers), range(geometry.n_heads)
    return [cell_name(layer, head) for layer in layers for head in heads]
