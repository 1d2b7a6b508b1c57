"""Contextual neurons: the bag of tokens of layer 0's heads, and the neurons it drives."""

from typing import Any, Final

import streamlit as st

from pages.contextual_neurons.bag import draw_bag, draw_embedding, say_how_well
from pages.contextual_neurons.neuron import KernelChoice, draw_latents, draw_neuron, draw_trace
from pages.contextual_neurons.neuron_list import choose_neuron, draw_neurons, draw_search
from pages.shared.cards.rest import rest
from pages.shared.choices.fit import choose_one, fitted_list, fitted_number
from pages.shared.experiments.contextual_controls import choose_first_windows, choose_token
from pages.shared.jobs import results
from pages.shared.selection.head_link import page_link
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.bag.contextual_neurons import (
    ContextualNeurons,
    ContextualNeuronsParams,
)
from poskernel_core.common.heads import head_name

PLACE = Place(
    "Neurons",
    "Do the contextual heads of layer 0 write a *bag of tokens*, in which each earlier "
    "token adds a fixed vector, its extended embedding? Neurons that read the bag "
    "distinguish contexts.",
    needs="weights",
    questions=(
        "contextual-neurons",
        "neuron",
        "neuron-trace",
        "neuron-latents",
        "extended-embedding",
        "word-neurons",
    ),
)

SCALES: Final[dict[str, str]] = {
    "each token's own": "token",
    "each position's": "position",
    "one for all": "mean",
}
KERNELS: Final[dict[str, KernelChoice]] = {"each its own": "own", "their mean": "common"}


def choose_bag(selection: Selection) -> tuple[dict[str, Any], int, KernelChoice]:
    """Draw the settings of the bag; return them, the minimum token count, and the kernel."""
    heads = [head_name(0, head) for head in range(selection.located.geometry.n_heads)]
    one, two, three = st.columns([4, 2, 3], vertical_alignment="bottom")
    chosen = one.multiselect(
        "Contextual heads of layer 0",
        placeholder="all contextual ones",
        help="by default those that pass the usual thresholds on these windows",
        **fitted_list("bagheads", heads),
    )
    token = choose_token(two, selection.run.model)
    first_windows = choose_first_windows(three, 32, selection.run.windows)
    left, right, last = st.columns([5, 4, 3], vertical_alignment="bottom")
    post = "the post uses one for all"
    scale = choose_one("Scale of the norms", SCALES, "normscale", place=left, help=post)
    kernel = choose_one("Kernel of the heads", KERNELS, "bagkernel", place=right, help=post)
    fewest = last.number_input(
        "Rarest token listed",
        help="how often a token must occur in the windows; 0 lists the whole vocabulary",
        **fitted_number("mincount", ContextualNeuronsParams.ends("min_count"), 5),
    )
    bag: dict[str, Any] = {
        "heads": ", ".join(chosen),
        "token": token,
        "first_windows": first_windows,
        "scale": SCALES[scale],
        "query": selection.query,
    }
    return bag, int(fewest), KERNELS[kernel]


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    if selection.located.geometry.architecture == "attn-only":
        st.info(
            "This model has no MLPs and so no neurons: choose a model with MLPs, such as "
            "demo-gpt2. Its contextual heads are on the page "
            f"{page_link('contextual', 'Context')}.",
            icon=":material/info:",
        )
        return
    bag, fewest, kernel = choose_bag(selection)
    shared: dict[str, Any] = {**bag, "min_count": fewest}
    params = ContextualNeuronsParams(kernel=kernel, **shared)
    result = results.fetch(ContextualNeurons, selection.run, params)
    if result is None:
        return
    say_how_well(result)
    number = choose_neuron(result)
    draw_neurons(result, number)
    draw_search(selection, result, shared)
    with rest() as wanted:
        if wanted:
            draw_bag(result)
            st.subheader(f"Neuron {number}", anchor="one-neuron")
            draw_neuron(selection, result, number, shared)
            draw_trace(selection, number, bag, kernel)
            draw_latents(selection, number, shared)
            draw_embedding(selection, shared)
