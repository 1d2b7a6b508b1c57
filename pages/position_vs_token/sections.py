"""The cards of the page on position against token: look-back heads, and position 0."""

from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from pages.position_vs_token import captions as words
from pages.position_vs_token.look_back import look_back_table
from pages.shared.cards.card import card, chart
from pages.shared.cards.metric import draw_metric
from pages.shared.selection.head_choice import HeadChoice, strongest
from poskernel_core.analyses.position_vs_token.figures import look_back_figure, position_zero_figure
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import rounded, value_text


def draw_look_back(parts: Result, head: HeadChoice, selected: str) -> None:
    """Draw how far back every head looks, and the chosen one's diagonals."""
    shown = parts.only("largest_offset", "largest_mass", "first_mass", "profile")
    figure = partial(look_back_figure, parts, head.layer, head.head)

    def draw() -> None:
        look_back_table(shown, selected)
        chart("look-back", figure())

    card("lookback", figure, shown, words.LOOK_BACK, "Look-back heads", draw)


def draw_first(zero: Result, parts: Result, head: HeadChoice) -> None:
    """Draw the exception of position 0."""
    one = parts.select(layer=head.layer, head=head.head)
    alone, both = one.select(condition=1), one.select(condition=0)
    st.markdown(
        f"**{head.cell}** attends from position 1 to position 0 with "
        f"{value_text(alone, 'first_mass')} by position only and {value_text(both, 'first_mass')} "
        f"with both; to the previous token elsewhere with "
        f"{value_text(alone.select(offset=1), 'profile')} and "
        f"{value_text(both.select(offset=1), 'profile')}."
    )
    st.markdown(
        "Probability of [B] after the last [A], by what the sequence begins with and where the "
        "first [A] stands:"
    )
    induction = strongest(np.nan_to_num(zero.values["candidate_attention"]).max(axis=0))
    for number, (column, case) in enumerate(zip(st.columns(3), zero.words("cases"), strict=True)):
        _draw_case(column, case, zero.select(case=number))
    figure = partial(position_zero_figure, zero, induction.layer, induction.head)
    shown = zero.select(layer=induction.layer, head=induction.head)
    card("zero", figure, shown, words.FIRST)


def _draw_case(column: Any, case: str, one: Result) -> None:
    """Draw the probability of [B] in one case; a model without a start token has no first one."""
    probability, error = (float(part["probability"]) for part in (one.values, one.errors))
    text = "no start token" if np.isnan(probability) else rounded(probability, error)
    draw_metric(column, case, text, "probability of [B] after the last [A]")
