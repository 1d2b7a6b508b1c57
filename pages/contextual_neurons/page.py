"""Contextual neurons: the bag of tokens that layer 0's heads fill, and the neurons it drives."""

from typing import Any, Final

import streamlit as st

from pages.contextual_neurons.bag import draw_bag, draw_embedding, say_how_well
from pages.contextual_neurons.neuron import KernelChoice, draw_latents, draw_neuron, draw_trace
from pages.contextual_neurons.neuron_list import choose_neuron, draw_neurons, draw_search
from pages.shared.cards.contents import contents_here
from pages.shared.cards.plain import plain
from pages.shared.experiments.contextual_controls import choose_first_windows, choose_token
from pages.shared.jobs import results
from pages.shared.selection.fit import linked
from pages.shared.selection.place import Place, Screenshot, page_link
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.bag.contextual_neurons import (
    ContextualNeurons,
    ContextualNeuronsParams,
)
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result

PLACE = Place(
    "Neurons",
    picture=Screenshot("model=demo-gpt2&neuron=648", "neurons"),
    idle=frozenset({"head", "skip"}),
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
    """Draw what the bag is made of; return it, the rarest token listed, which kernel predicts."""
    heads = [head_name(0, head) for head in range(selection.located.geometry.n_heads)]
    one, two, three = st.columns([4, 2, 3], vertical_alignment="bottom")
    chosen = one.multiselect(
        "Contextual heads of layer 0",
        heads,
        placeholder="all contextual ones",
        help="found with the usual thresholds, on the windows chosen here",
        **linked("bagheads"),
    )
    token = choose_token(two)
    first_windows = choose_first_windows(three, 32, selection.run.windows)
    left, right, last = st.columns([5, 4, 3], vertical_alignment="bottom")
    scale = left.segmented_control(
        "Scale of the norms",
        list(SCALES),
        required=True,
        default="each token's own",
        help="the post takes one for all",
        **linked("normscale"),
    )
    kernel = right.segmented_control(
        "Kernel of the heads",
        list(KERNELS),
        required=True,
        default="each its own",
        help="the post takes one for all",
        **linked("bagkernel"),
    )
    fewest = last.number_input(
        "Rarest token listed",
        0,
        1_000_000,
        5,
        help="times that a token must occur in the windows; 0 lists the whole vocabulary",
        **linked("mincount"),
    )
    bag: dict[str, Any] = {
        "heads": ", ".join(chosen),
        "token": token,
        "first_windows": first_windows,
        "scale": SCALES[scale],
        "query": selection.query,
    }
    return bag, int(fewest), KERNELS[kernel]


def draw_all(
    selection: Selection,
    found: Result,
    bag: dict[str, Any],
    shared: dict[str, Any],
    kernel: KernelChoice,
) -> None:
    """Draw all neurons, the bag, and one neuron: tokens, relatives, a text, sub-latents."""
    say_how_well(found)
    number = choose_neuron(found)
    draw_neurons(found, number)
    draw_search(selection, found, shared)
    draw_bag(found)
    st.subheader(f"Neuron {number}", anchor="one-neuron")
    draw_neuron(selection, found, number, shared)
    draw_trace(selection, number, bag, kernel)
    draw_latents(selection, number, shared)
    draw_embedding(selection, shared)


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    st.title(PLACE.title)
    contents_here()
    st.markdown(
        "How far is what the contextual heads of layer 0 of "
        f"**{plain(selection.run.model.name)}** write a *bag of tokens*: a sum over the tokens "
        "before, each with a fixed vector, its extended embedding? Neurons that read it "
        "distinguish contexts."
    )
    if selection.located.geometry.architecture == "attn-only":
        st.info(
            "This model has attention only and no neurons: choose a model with MLPs, such as "
            "demo-gpt2. Its contextual heads are on the page "
            f"{page_link('contextual', 'Context')}.",
            icon=":material/info:",
        )
    else:
        bag, fewest, kernel = choose_bag(selection)
        shared: dict[str, Any] = {**bag, "min_count": fewest}
        found = results.fetch(
            ContextualNeurons, selection.run, ContextualNeuronsParams(kernel=kernel, **shared)
        )
        if found is not None:
            draw_all(selection, found, bag, shared, kernel)
