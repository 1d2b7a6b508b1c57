"""The cards on one neuron: its tokens, its relatives, its course along a text, its sub-latents."""

from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import streamlit as st

from pages.contextual_neurons import captions as words
from pages.contextual_neurons.coloured_text import coloured_text
from pages.contextual_neurons.neuron_list import select_neuron
from pages.shared.cards.card import card, chart
from pages.shared.jobs import results
from pages.shared.selection.fit import fitted, linked
from pages.shared.selection.selection import Selection
from pages.shared.selection.source import choose_text
from pages.shared.tables.tables import choice_table
from pages.shared.tables.word_lists import joined, word_lists
from poskernel_core.analyses.bag.figures import (
    contributions_figure,
    latents_figure,
    related_figure,
    trace_figure,
)
from poskernel_core.analyses.bag.neuron import (
    Neuron,
    NeuronLatents,
    NeuronLatentsParams,
    NeuronParams,
    NeuronTrace,
    NeuronTraceParams,
)
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import as_printed, value_text
from poskernel_core.plotting.layout import without_title

KernelChoice = Literal["own", "common"]
RELATIVES = 8
WINDOW = "a window of the corpus"


def draw_neuron(selection: Selection, found: Result, number: int, shared: dict[str, Any]) -> None:
    """Draw the tokens that move a neuron, and the neurons that are like it."""
    names = ("drive", "drive_share", "r2", "r2_of_bag", "sign_agreement", "fires")
    one = found.only(*names).select(neuron=number)
    predicts = float(one.values["r2"]) > 0
    why = "mostly the direct path's" if predicts else "worse than by its mean alone"
    st.markdown(
        f"What the bag adds varies with {value_text(one, 'drive_share')} of the neuron's own "
        f"variance (drive {value_text(one, 'drive')}); what the other parts add varies with it or "
        "against it, so such shares need not add up to 1. All parts together predict the neuron "
        f"with R² {value_text(one, 'r2')}, {why}; the bag predicts what the other parts leave over "
        f"with R² {value_text(one, 'r2_of_bag')}. On the right side of 0 at "
        f"{value_text(one, 'sign_agreement')} of the positions; positive at "
        f"{value_text(one, 'fires')}."
    )
    neuron = results.fetch(Neuron, selection.run, NeuronParams(neuron=number, **shared))
    if neuron is None:
        return
    left, right = st.columns(2)

    def draw_tokens() -> None:
        word_lists(neuron, ("for", "against"), "adds", "neuron-tokens")
        chart("tokens", without_title(contributions_figure(neuron)))

    def draw_relatives() -> None:
        chart("related", without_title(related_figure(neuron, number)))
        _relatives_table(neuron, number)

    with left:
        card(
            "tokens",
            partial(contributions_figure, neuron),
            neuron.only("contribution"),
            words.TOKENS,
            f"Tokens of neuron {number}",
            draw_tokens,
        )
    with right:
        card(
            "related",
            partial(related_figure, neuron, number),
            neuron.only("related", "output_cosine"),
            words.RELATED,
            "Related and opposite neurons",
            draw_relatives,
        )


def _relatives_table(neuron: Result, number: int) -> None:
    related = neuron.values["related"]
    order = [int(each) for each in np.argsort(-np.abs(related), kind="stable") if each != number]
    order = order[:RELATIVES]
    table = pd.DataFrame(
        {
            "neuron": order,
            "reads alike": related[order],
            "writes alike": neuron.values["output_cosine"][order],
        }
    )
    number_column = st.column_config.NumberColumn(format="%.2f")
    choice_table(
        table,
        "related-table",
        select_neuron,
        {"reads alike": number_column, "writes alike": number_column},
    )


def draw_trace(
    selection: Selection, number: int, bag: dict[str, Any], kernel: KernelChoice
) -> None:
    """Draw a neuron's predicted and true pre-activation along a text."""
    text = _choose_text(selection)
    if text is None:
        return
    trace = results.fetch(
        NeuronTrace, selection.run, NeuronTraceParams(neuron=number, kernel=kernel, **bag, **text)
    )
    if trace is None:
        return

    def draw() -> None:
        parts = st.toggle("Show the parts of the prediction", False, **linked("parts"))
        st.markdown(
            f"R² {_two_places(trace, 'r2')} (of the bag alone, against what the other parts leave "
            f"over, {_two_places(trace, 'r2_of_bag')}), correlation "
            f"{_two_places(trace, 'correlation')}, the same side of 0 at "
            f"{100 * float(trace.values['sign_agreement']):.0f} % of the positions of this text."
        )
        chart("trace", without_title(trace_figure(trace, parts)))
        coloured_text(trace.words("tokens"), trace.values["contribution"], "contribution")

    card(
        "trace",
        partial(trace_figure, trace, True),
        trace,
        words.TRACE,
        f"Neuron {number} along a text",
        draw,
    )


def _two_places(found: Result, name: str) -> str:
    return as_printed(f"{float(found.values[name]):.2f}")


def _choose_text(selection: Selection) -> dict[str, Any] | None:
    """Draw the choice of a text: a window of the corpus, a chapter, or one's own."""
    chosen = st.segmented_control(
        "Text", [WINDOW, "a text"], default=WINDOW, required=True, **linked("tracetext")
    )
    if chosen == WINDOW:
        last = selection.run.windows - 1
        window = st.number_input("Window", 0, last, **fitted("window", range(last + 1), 0))
        return {"window": int(window)}
    found = choose_text("the neuron is followed along it")
    if found is None:
        return None
    return {"item": found["text_item"]} if "text_item" in found else {"text": found["text"]}


def draw_latents(selection: Selection, number: int, shared: dict[str, Any]) -> None:
    """Draw what groups of tokens a neuron's contributions are made of."""
    components = st.slider(
        "Components of the vocabulary",
        2,
        64,
        24,
        help="independent components of the extended embeddings that are looked for",
        **linked("components"),
    )
    found = results.fetch(
        NeuronLatents,
        selection.run,
        NeuronLatentsParams(neuron=number, components=components, **shared),
    )
    if found is None:
        return

    def draw() -> None:
        chart("latents", without_title(latents_figure(found)))
        rows = [
            {
                "share": float(share),
                "towards firing": joined(top, len(top)),
                "against": joined(bottom, len(bottom)),
            }
            for share, top, bottom in zip(
                found.values["share"],
                found.texts["top_words"],
                found.texts["bottom_words"],
                strict=True,
            )
        ]
        column = st.column_config.ProgressColumn(format="percent", min_value=0, max_value=1)
        st.dataframe(
            pd.DataFrame(rows),
            hide_index=True,
            key="latents-table",
            column_config={"share": column},
        )

    card(
        "latents",
        partial(latents_figure, found),
        found,
        words.LATENTS,
        f"Sub-latents of neuron {number}",
        draw,
    )
