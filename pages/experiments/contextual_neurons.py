"""Contextual neurons: the bag of tokens that layer 0's heads fill, and the neurons it drives."""

from __future__ import annotations

from typing import Any, Final, cast

import streamlit as st

from pages.parts import results
from pages.parts.bag_cards import draw_bag, draw_embedding
from pages.parts.contents import contents_here
from pages.parts.contextual_controls import choose_contexts, choose_token
from pages.parts.neuron_cards import draw_latents, draw_neuron, draw_trace
from pages.parts.neuron_list import choose_neuron, draw_neurons, draw_search
from pages.parts.plain import plain
from pages.parts.selection import Selection
from poskernel_core.analyses.base import Result
from poskernel_core.config import cell_name

selection = cast(Selection, st.session_state["selection"])
URL: Final = "query-params"
SCALES = {"each token's own": "token", "each position's": "position", "one for all": "mean"}
KERNELS = {"each its own": "own", "their mean": "common"}


def choose_bag() -> tuple[dict[str, Any], str]:
    """Draw what the bag is made of; return its parameters, and which kernel predicts."""
    heads = [cell_name(0, head) for head in range(selection.located.geometry.n_heads)]
    one, two, three = st.columns([4, 2, 3], vertical_alignment="bottom")
    chosen = one.multiselect(
        "Contextual heads of layer 0", heads, key="bagheads", bind=URL,
        placeholder="those found to be contextual",
        help="found with the usual thresholds, on the texts chosen here",
    )  # fmt: skip
    token = choose_token(two)
    contexts = choose_contexts(three, 32, selection.run.windows)
    left, right, last = st.columns([5, 4, 3], vertical_alignment="bottom")
    scale = left.segmented_control(
        "Scale of the norms", list(SCALES), key="scale", bind=URL, required=True,
        default="each token's own", help="the post takes one for all",
    )  # fmt: skip
    kernel = right.segmented_control(
        "Kernel of the heads", list(KERNELS), key="bagkernel", bind=URL, required=True,
        default="each its own", help="the post takes one for all",
    )  # fmt: skip
    fewest = last.number_input(
        "Rarest token listed", 0, 1_000_000, 5, key="fewest", bind=URL,
        help="times that a token must occur in the texts; 0 lists the whole vocabulary",
    )  # fmt: skip
    shared = {"heads": ", ".join(chosen), "token": token, "contexts": contexts,
              "scale": SCALES[scale], "query": selection.query}  # fmt: skip
    return shared | {"fewest": int(fewest)}, KERNELS[kernel]


def draw_all(found: Result, shared: dict[str, Any], kernel: str) -> None:
    """Draw all neurons, the bag, and one neuron: tokens, relatives, a text, sub-latents."""
    number = choose_neuron(found)
    draw_neurons(found, number)
    draw_search(selection, found, shared)
    draw_bag(found)
    st.subheader(f"Neuron {number}", anchor="one-neuron")
    draw_neuron(selection, found, number, shared)
    draw_trace(selection, number, shared, kernel)
    draw_latents(selection, number, shared)
    draw_embedding(selection, shared)


st.title("Contextual neurons")
contents_here()
st.markdown(
    f"How far is what the contextual heads of layer 0 of **{plain(selection.run.model.name)}** "
    "write a *bag of tokens*: a sum over the tokens before, each with a fixed vector, its extended "
    "embedding? Neurons that read it tell contexts apart."
)
if selection.located.geometry.architecture == "attn-only":
    st.info(
        "This model has attention only and no neurons: choose a model with MLPs, such as "
        "demo-gpt2. Its contextual heads are on the page of that name.",
        icon=":material/info:",
    )
else:
    shared, kernel = choose_bag()
    found = results.fetch("contextual-neurons", selection.run, kernel=kernel, **shared)
    if found is not None:
        draw_all(found, shared, kernel)
