"""All neurons of layer 0: as a figure, as a ranking, and by the words they fire for."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from pages.shared.cards.figure import chart
from pages.shared.cards.show import show
from pages.shared.choices.choices import choose
from pages.shared.choices.fit import fitted, fitted_index, fitted_text
from pages.shared.jobs import results
from pages.shared.selection.selection import Selection
from pages.shared.tables.tables import choice_table, joined, number_columns
from poskernel_core.analyses.bag.neuron import WordNeurons, WordNeuronsParams
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted

RANKS = {
    "share of variance": "drive_share",
    "drive": "drive",
    "R²": "r2",
    "R² of the bag": "r2_of_bag",
    "sign agreement": "sign_agreement",
}
COLUMNS = {
    "share": ("drive_share", "variance of the bag's part over that of the true pre-activation"),
    "drive": ("drive", "standard deviation of the bag's part of the pre-activation"),
    "R²": ("r2", "predicted against true pre-activation, mostly by the direct path; 1 is best"),
    "R² of bag": ("r2_of_bag", "the bag's part against the residual of all other parts; 1 is best"),
    "sign": ("sign_agreement", "share of positions where both have the same sign; 1 is best"),
    "fires": ("fires", "share of positions with positive true pre-activation"),
}


def choose_neuron(result: Result) -> int:
    """Draw the field for the neuron shown."""
    last = len(result.values["drive"]) - 1
    best = int(np.nanargmax(result.values["drive_share"]))
    number = st.number_input(
        "Neuron of layer 0",
        help=f"0 to {last}; by default, the one with the largest share. Tables select neurons too",
        **fitted("neuron", range(last + 1), best),
    )
    return int(number)


def draw_neurons(result: Result, number: int) -> None:
    """Draw all neurons by how strongly the bag drives them; a ring marks ``number``."""
    names = [name for name, _ in COLUMNS.values()]
    neurons = result.only(
        *names,
        "contribution_mean",
        "contribution_std",
        "top",
        "top_contribution",
        "bottom",
        "bottom_contribution",
    )

    def draw() -> None:
        ranked = st.selectbox("Neurons ranked by", **fitted_index("rank", RANKS))
        rank = RANKS[ranked or "share of variance"]
        order = np.argsort(-np.nan_to_num(result.values[rank], nan=-np.inf), kind="stable")
        _neuron_table(result, order, "neuron-table")
        st.caption(f"{counted(len(order), 'neuron')}; a click shows one below.")
        chart("neurons", partial(figure_of, neurons, neuron=number, rank_by=rank))

    show("neurons", neurons, "Neurons that the bag drives", draw, neuron=number)


def _neuron_table(
    result: Result, order: np.ndarray, key: str, more: dict[str, np.ndarray] | None = None
) -> None:
    table = pd.DataFrame({"neuron": order, **(more or {})})
    for label, (name, _) in COLUMNS.items():
        table[label] = result.values[name][order]
    for label, name in (("for", "top_words"), ("against", "bottom_words")):
        table[label] = [joined(result.texts[name][number]) for number in order]
    columns = number_columns(
        {label: help_text for label, (_, help_text) in COLUMNS.items()}, "%.3g"
    )
    columns |= number_columns(dict.fromkeys(more or {}, "standard deviations over tokens"), "%.2f")
    for label, meaning in (("for", "favour"), ("against", "prevent")):
        column = st.column_config.TextColumn(width="medium", help=f"tokens that {meaning} firing")
        columns[label] = column
    choice_table(table, key, select_neuron, columns)


def select_neuron(neuron: int) -> None:
    """Show another neuron. A callback."""
    choose("neuron", neuron)


def draw_search(selection: Selection, result: Result, shared: dict[str, Any]) -> None:
    """Draw which neurons fire for the reader's words."""
    typed = st.text_input(
        "Which neurons fire for these words?",
        placeholder="such as: server database rows",
        **fitted_text("words", most=WordNeuronsParams.ends("words")[1]),
    )
    if not (typed or "").strip():
        return
    scores = results.fetch(WordNeurons, selection.run, WordNeuronsParams(words=typed, **shared))
    if scores is None:
        return
    score = scores.values["score"]

    def draw() -> None:
        st.caption(f"Tokens searched: {joined(scores.words('words'), 40)}")
        for name, title in (("for", "They fire"), ("against", "They are kept from firing")):
            st.markdown(f"**{title}**")
            order = scores.values[name]
            _neuron_table(result, order, f"words-{name}", {"score (sd)": score[order]})

    show("words", scores, "Neurons of these words", draw)
