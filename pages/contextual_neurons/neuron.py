"""The cards on one neuron: its tokens, related neurons, a trace along a text, sub-latents."""

from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import streamlit as st

from pages.contextual_neurons.neuron_list import select_neuron
from pages.shared.cards.figure import chart
from pages.shared.cards.show import show
from pages.shared.choices.fit import choose_one, fitted, fitted_flag, fitted_number
from pages.shared.jobs import results
from pages.shared.selection.selection import Selection
from pages.shared.selection.source import choose_text
from pages.shared.tables.tables import (
    choice_table,
    joined,
    linked_table,
    number_columns,
    word_lists,
)
from poskernel_core.analyses.bag.neuron import (
    Neuron,
    NeuronLatents,
    NeuronLatentsParams,
    NeuronParams,
    NeuronTrace,
    NeuronTraceParams,
)
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import as_printed, value_text
from poskernel_core.plotting.coloured_text import coloured_text

KernelChoice = Literal["own", "common"]
RELATIVES = 8
WINDOW = "a window of the corpus"


def draw_neuron(selection: Selection, result: Result, number: int, shared: dict[str, Any]) -> None:
    """Draw the tokens that move a neuron, and related neurons."""
    names = ("drive", "drive_share", "r2", "r2_of_bag", "sign_agreement", "fires")
    one = result.only(*names).select(neuron=number)
    predicts = float(one.values["r2"]) > 0
    why = "mostly through the direct path" if predicts else "worse than its mean does"
    st.markdown(
        f"The variance of the bag's part is {value_text(one, 'drive_share')} of the neuron's own "
        f"(drive {value_text(one, 'drive')}); the parts are correlated, so their shares need not "
        f"add up to 1. All parts together predict the neuron with R² {value_text(one, 'r2')}, "
        f"{why}. The bag predicts the residual of the other parts with R² "
        f"{value_text(one, 'r2_of_bag')}. The sign is right at "
        f"{value_text(one, 'sign_agreement')} of the positions; the neuron is positive at "
        f"{value_text(one, 'fires')}."
    )
    neuron = results.fetch(Neuron, selection.run, NeuronParams(neuron=number, **shared))
    if neuron is None:
        return
    left, right = st.columns(2)
    tokens = neuron.only("contribution", "top_value", "bottom_value")
    related = neuron.only("related", "output_cosine")

    words = partial(word_lists, neuron, ("for", "against"), "adds", "neuron-tokens")
    show("tokens", tokens, f"Tokens of neuron {number}", above=words, column=left)
    table = partial(_relatives_table, neuron, number)
    show("related", related, "Related and opposite neurons", below=table, column=right)


def _relatives_table(neuron: Result, number: int) -> None:
    related = neuron.values["related"]
    order = [int(index) for index in np.argsort(-np.abs(related), kind="stable") if index != number]
    order = order[:RELATIVES]
    table = pd.DataFrame(
        {
            "neuron": order,
            "reads alike": related[order],
            "writes alike": neuron.values["output_cosine"][order],
        }
    )
    columns = number_columns(dict.fromkeys(("reads alike", "writes alike"), "cosine"), "%.2f")
    choice_table(table, "related-table", select_neuron, columns)


def draw_trace(
    selection: Selection, number: int, bag: dict[str, Any], kernel: KernelChoice
) -> None:
    """Draw a neuron's predicted and true pre-activation along a text."""
    text = _choose_text(selection)
    if text is None:
        return
    params = NeuronTraceParams(neuron=number, kernel=kernel, **bag, **text)
    trace = results.fetch(NeuronTrace, selection.run, params)
    if trace is None:
        return

    def draw() -> None:
        parts = st.toggle("Show the parts of the prediction", **fitted_flag("parts"))
        st.markdown(
            f"R² {_two_places(trace, 'r2')} (the bag against the residual of the other parts: "
            f"{_two_places(trace, 'r2_of_bag')}), correlation "
            f"{_two_places(trace, 'correlation')}, the same sign at "
            f"{100 * float(trace.values['sign_agreement']):.0f} % of the positions of this text."
        )
        chart("trace", partial(figure_of, trace, parts=parts))
        words_of, values = trace.words("tokens"), trace.values["contribution"]
        text, caption = coloured_text(words_of, values, "contribution")
        st.caption(caption)
        st.html(text)

    show("trace", trace, f"Neuron {number} along a text", draw)


def _two_places(result: Result, name: str) -> str:
    return as_printed(f"{float(result.values[name]):.2f}")


def _choose_text(selection: Selection) -> dict[str, Any] | None:
    """Draw the choice of a text: a window of the corpus, a chapter, or the reader's own."""
    if choose_one("Text", (WINDOW, "a text"), "tracetext") == WINDOW:
        last = selection.run.windows - 1
        window = st.number_input("Window", **fitted("window", range(last + 1), 0))
        return {"window": int(window)}
    text_params = choose_text("the neuron is traced along it")
    if text_params is None:
        return None
    return (
        {"item": text_params["text_item"]}
        if "text_item" in text_params
        else {"text": text_params["text"]}
    )


def draw_latents(selection: Selection, number: int, shared: dict[str, Any]) -> None:
    """Draw the groups of tokens that make up a neuron's contributions."""
    components = st.slider(
        "Components of the vocabulary",
        help="number of independent components of the extended embeddings",
        **fitted_number("components", NeuronLatentsParams.ends("components"), 24),
    )
    params = NeuronLatentsParams(neuron=number, components=components, **shared)
    result = results.fetch(NeuronLatents, selection.run, params)
    if result is None:
        return

    def groups() -> None:
        table = pd.DataFrame(
            {
                "share": result.values["share"].astype(float),
                "towards firing": [
                    joined(tokens, len(tokens)) for tokens in result.texts["top_words"]
                ],
                "against": [joined(tokens, len(tokens)) for tokens in result.texts["bottom_words"]],
            }
        )
        column = st.column_config.ProgressColumn(format="percent", min_value=0, max_value=1)
        linked_table(table, "latents-table", {"share": column})

    show("latents", result, f"Sub-latents of neuron {number}", below=groups)
