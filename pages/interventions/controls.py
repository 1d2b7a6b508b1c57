"""The controls of the interventions page: presets, the prompt, and the change."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import streamlit as st

from pages.shared.choices.choices import choose, chosen, drawn, wanted
from pages.shared.choices.fit import (
    choose_one,
    fitted_index,
    fitted_list,
    fitted_number,
    fitted_text,
)
from pages.shared.selection.selection import Selection, select_head
from poskernel_core.analyses.interventions.presets import Preset, presets_for
from poskernel_core.analyses.interventions.spec import InterventionParams
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
    moves = list(dict.fromkeys([*defaults["moves"], *wanted("moves")]))
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
        "Multiply by",
        step=0.5,
        **_number("scale", defaults),
    )
    for two in more:
        params["strength"] = two.number_input(
            "Nats above the largest score",
            step=1.0,
            **_number("strength", defaults),
        )
    scope = last.selectbox("What is multiplied", **fitted_index("scope", SCOPES, defaults["scope"]))
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
    choose("moves", list(dict.fromkeys([*chosen("moves"), move])))


def keep_fitting() -> None:
    """Remove moves whose words the new prompt does not contain. A callback."""
    if moves := chosen("moves"):
        choose("moves", fitting(moves, chosen("prompt")))


def choose_stage(place: Any, defaults: dict[str, Any]) -> str:
    """Draw the choice between scores and pattern."""
    usual = defaults["stage"]
    return CHANGED_STAGES[
        place.selectbox("Changed", **fitted_index("stage", CHANGED_STAGES, usual))
    ]


CHANGES: Final[dict[str, str]] = {
    "average positions": "average",
    "blind to predecessor": "blind",
    "move attention": "move",
    "ablate heads": "ablate",
    "remove embeddings": "remove",
}
REMOVED: Final[dict[str, str]] = {
    "positional embeddings": "positions",
    "token embeddings": "tokens",
}
MAX_CHARACTERS = 20_000


def choose_intervention(selection: Selection) -> tuple[str | None, dict[str, Any]]:
    """Draw all controls; return the prompt, None while it is empty, and the parameters."""
    run, scheme = selection.run, selection.located.geometry.scheme
    presets = presets_for(run.model.name, scheme, run.context)
    first, about = choose_preset(selection, presets, _values)
    prompt = _choose_prompt(first)
    params = _choose_change(selection, first, prompt or "")
    about()
    return prompt, params


Values = Callable[[Preset, str], dict[str, Any]]
"""Returns the values of all widgets for a preset and the selected head."""


def choose_preset(
    selection: Selection, presets: tuple[Preset, ...], values_of: Values, key: str = "preset"
) -> tuple[Preset, Callable[[], None]]:
    """Draw presets; choosing one writes its values to all controls.

    Returns the first preset, and a function that draws the description of the chosen one: call it
    when all controls are drawn.
    """
    names = [preset.name for preset in presets]
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    apply = partial(_apply, key, presets, values_of, selection.cell)
    name = left.selectbox("Preset", **fitted_index(key, names, then=apply))
    preset = presets[names.index(name)]
    if preset.cell and preset.cell != selection.cell:
        right.button(
            f"Look at {preset.cell}, the preset's head",
            icon=":material/visibility:",
            on_click=select_head,
            args=(preset.cell,),
            key="look",
        )
    values, place = values_of(preset, selection.cell), st.empty()

    def about() -> None:
        same = all(chosen(key) == value for key, value in values.items() if drawn(key))
        changed = "Changed since: choose another preset, then this one again, to restore it."
        place.caption(preset.about if same else changed)

    return presets[0], about


def _apply(key: str, presets: tuple[Preset, ...], values_of: Values, cell: str) -> None:
    """Write a preset's values to the widgets. A callback."""
    preset = next(candidate for candidate in presets if candidate.name == chosen(key))
    for name, value in values_of(preset, cell).items():
        choose(name, value)


def _values(preset: Preset, cell: str) -> dict[str, Any]:
    """Return the values of all widgets for a preset; ``cell`` is the selected head."""
    params = InterventionParams(**preset.params)
    head = preset.cell or cell
    layer = "in W_pos" if params.layer is None else _before(params.layer)
    return {
        "prompt": preset.prompt,
        "change": _word(CHANGES, params.change),
        "group": params.group,
        "keep": params.keep,
        "place": layer,
        "every": params.every,
        "layers": params.layers,
        "stage": _word(CHANGED_STAGES, params.stage),
        "edited": params.edited or head,
        "moves": _parts(params.moves),
        "strength": params.strength,
        "scale": params.scale,
        "scope": _word(SCOPES, params.scope),
        "ablated": _parts(params.heads) or [head],
        "removed": _word(REMOVED, params.embeddings),
    }


def _word(words: Mapping[str, str], code: str) -> str:
    return next(word for word, value in words.items() if value == code)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _before(layer: int) -> str:
    return f"in the stream before layer {layer}"


def _choose_prompt(first: Preset) -> str | None:
    """Draw the prompt; return it, or None while it is empty."""
    prompt = st.text_area(
        "Prompt",
        height=140,
        help="the model predicts the next token; the prompt may fill the context",
        **fitted_text("prompt", first.prompt, MAX_CHARACTERS, keep_fitting),
    )
    if prompt.strip():
        return prompt
    st.info("Type a prompt of a few words or more: the model predicts the next token.")
    return None


def _choose_change(selection: Selection, first: Preset, prompt: str) -> dict[str, Any]:
    """Draw the kind of change and its settings; return them as parameters.

    Moves, or ablated heads, may be empty: see :func:`missing`.
    """
    defaults = _values(first, selection.cell)
    defaults["moves"] = fitting(defaults["moves"], prompt)
    chosen = choose_one("Change", CHANGES, "change", default=defaults["change"])
    draw: dict[str, Callable[[Selection, dict[str, Any]], dict[str, Any]]] = {
        "average": _average,
        "blind": _blind,
        "move": choose_move,
        "ablate": _ablate,
        "remove": _remove,
    }
    code = CHANGES[chosen]
    params = draw[code](selection, defaults)
    if code == "move":
        offer_words(prompt)
    return params


def missing(params: dict[str, Any]) -> str:
    """Return what the reader still has to choose, as a sentence, or an empty text."""
    if params["change"] == "move" and not params["moves"]:
        return (
            "Choose a word of the prompt and the word that it attends to instead, then press Add."
        )
    if params["change"] == "ablate" and not params["heads"]:
        return "Choose one or more heads to ablate."
    return ""


def _number(name: str, defaults: dict[str, Any]) -> dict[str, Any]:
    """Return what a field for a number takes, within the bounds of its parameter."""
    return fitted_number(name, InterventionParams.ends(name), defaults[name])


def _average(selection: Selection, defaults: dict[str, Any]) -> dict[str, Any]:
    left, right, last = st.columns([2, 2, 1], vertical_alignment="bottom")
    layers = range(selection.located.geometry.n_layers)
    places = ["in W_pos", *map(_before, layers)]
    place = left.selectbox("Averaged", **fitted_index("place", places, defaults["place"]))
    group = right.number_input("Positions per group", **_number("group", defaults))
    keep = last.number_input(
        "Spare the first positions",
        help="in later layers the first positions have huge vectors, which averaging would spread",
        **_number("keep", defaults),
    )
    return {
        "change": "average",
        "group": group,
        "keep": keep,
        "layer": None if place == places[0] else places.index(place) - 1,
    }


def _blind(_selection: Selection, defaults: dict[str, Any]) -> dict[str, Any]:
    one, two, three = st.columns(3, vertical_alignment="bottom")
    every = one.number_input("Every k-th position, k =", **_number("every", defaults))
    hint = "such as 0-3 or 0,2; empty: the first four"
    most = InterventionParams.ends("layers")[1]
    layers = two.text_input(
        "In layers",
        help=hint,
        placeholder=hint,
        **fitted_text("layers", defaults["layers"], most),
    )
    stage = choose_stage(three, defaults)
    return {"change": "blind", "every": every, "layers": layers, "stage": stage}


def _ablate(selection: Selection, defaults: dict[str, Any]) -> dict[str, Any]:
    cells = selection.located.geometry.cells
    heads = st.multiselect(
        "Ablated heads",
        placeholder="choose one or more",
        **fitted_list("ablated", cells, defaults["ablated"]),
    )
    return {"change": "ablate", "heads": ", ".join(heads)}


def _remove(_selection: Selection, defaults: dict[str, Any]) -> dict[str, Any]:
    which = choose_one("Removed", REMOVED, "removed", default=defaults["removed"])
    return {"change": "remove", "embeddings": REMOVED[which]}
