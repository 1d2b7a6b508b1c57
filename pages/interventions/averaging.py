"""The loss on the corpus with positions averaged in groups, one size of group after the other."""

from functools import partial

import streamlit as st

from pages.interventions import captions as words
from pages.shared.cards.card import card
from pages.shared.jobs import results
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.interventions.averaging import Averaging, AveragingParams
from poskernel_core.analyses.interventions.figures import averaging_figure


def draw_averaging(selection: Selection, layer: int | None, keep: int) -> None:
    """Draw the loss on windows of the corpus against the size of the groups, where asked for."""
    if st.toggle("Measure the loss on 16 windows of the corpus, for every size of group", False,
                 key="avgtable", bind="query-params"):  # fmt: skip
        found = results.fetch(Averaging, selection.run, AveragingParams(layer=layer, keep=keep))
        if found is not None:
            card("averaging", partial(averaging_figure, found), found.only("loss", "loss_change"),
                 words.AVERAGING, "Loss on the corpus")  # fmt: skip
