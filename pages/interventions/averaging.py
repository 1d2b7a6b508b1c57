"""The loss on the corpus with positions averaged in groups, one size of group after the other."""

from __future__ import annotations

from functools import partial

import streamlit as st

from pages.shared import results
from pages.shared import words_positions as words
from pages.shared.cards import card
from pages.shared.selection import Selection
from poskernel_core.analyses.interventions.averaging import Averaging, AveragingParams
from poskernel_core.analyses.interventions.figures import averaging_figure

__all__ = ["draw_averaging"]


def draw_averaging(selection: Selection, layer: int | None, keep: int) -> None:
    """Draw the loss on windows of the corpus against the size of the groups, where asked for."""
    if st.toggle("Measure the loss on 16 windows of the corpus, for every size of group", False,
                 key="avgtable", bind="query-params"):  # fmt: skip
        found = results.fetch(Averaging, selection.run, AveragingParams(layer=layer, keep=keep))
        if found is not None:
            card("averaging", partial(averaging_figure, found), found.only("loss", "loss_change"),
                 words.AVERAGING, "Loss on the corpus")  # fmt: skip
