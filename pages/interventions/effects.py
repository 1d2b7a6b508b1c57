"""Effects of a change: attention to the previous token, and the loss on the corpus."""

from functools import partial

import streamlit as st

from pages.interventions import captions as words
from pages.shared.cards.card import card
from pages.shared.grid.measure_grid import draw_heads
from pages.shared.jobs import results
from pages.shared.selection.fit import linked
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.interventions.averaging import Averaging, AveragingParams
from poskernel_core.analyses.interventions.figures import averaging_figure
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.plotting.shades import diverging


def draw_mass_grid(masses: Result, selection: Selection) -> None:
    """Draw every head's change; a click selects the head on every page."""
    change = masses.values["previous_mass_change"]
    clean, changed = (masses.values[f"{run}_previous_mass"] for run in ("clean", "changed"))

    def label(i: int, j: int) -> str:
        return (
            f"{head_name(i, j)}: attention to the previous token {clean[i, j]:.3f} clean, "
            f"{changed[i, j]:.3f} changed"
        )

    labels = [[label(i, j) for j in range(len(row))] for i, row in enumerate(change)]
    unit = "change of the attention to the previous token"
    draw_heads(diverging(change), labels, unit, selection, "mass-grid")


def draw_averaging(selection: Selection, layer: int | None, keep: int) -> None:
    """Draw the loss on windows of the corpus against the size of the groups, if asked for."""
    if st.toggle(
        "Measure the loss on 16 windows of the corpus, for every size of group",
        False,
        **linked("avgtable"),
    ):
        found = results.fetch(Averaging, selection.run, AveragingParams(layer=layer, keep=keep))
        if found is not None:
            shown, figure = found.only("loss", "loss_change"), partial(averaging_figure, found)
            card("averaging", figure, shown, words.AVERAGING, "Loss on the corpus")
