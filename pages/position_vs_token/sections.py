"""The cards of the page on position against token: look-back heads, and position 0."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from pages.position_vs_token import captions as words
from pages.shared.cards.card import card, chart
from pages.shared.cards.metric import draw_metric
from pages.shared.selection.fit import linked
from pages.shared.selection.head_choice import strongest
from pages.shared.selection.selection import Selection, select_head
from pages.shared.tables.tables import choice_table, heads_frame
from poskernel_core.analyses.position_vs_token.figures import look_back_figure, position_zero_figure
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted, rounded, value_text

BOTH, POSITION = 0, 1
HELP = {
    "k, both": "offset of the largest diagonal, tokens",
    "P(k), both": "mean attention along it",
    "k, position only": "the same with positions only",
    "P(k), position only": "the same with positions only",
    "1 to 0, position only": "attention from position 1 to position 0",
    "P(1), position only": "mean attention to the previous token elsewhere",
}


def look_back_table(parts: Result, selected: str) -> None:
    """Draw every head as a row, most attention first; a click selects the head everywhere."""
    back = st.segmented_control(
        "Heads that look back by position",
        ["all", "k = 0", "k = 1", "k = 2", "k ≥ 3"],
        default="all",
        required=True,
        **linked("lookk"),
    )
    table = _table(parts)
    k = table["k, position only"]
    kept = {"all": k >= 0, "k = 0": k == 0, "k = 1": k == 1, "k = 2": k == 2, "k ≥ 3": k >= 3}
    table = table[kept[back]].reset_index(drop=True)
    if table.empty:
        st.info(f"No head of this model looks back by {back} with positions only.")
        return
    formats = {name: "%d" if name.startswith("k,") else "%.3f" for name in HELP}
    columns = {
        name: st.column_config.NumberColumn(format=formats[name], help=HELP[name]) for name in HELP
    }
    choice_table(table, "look-back-table", select_head, columns, rows=8)
    st.caption(f"{counted(len(table), 'head')}; scroll for more. Selected: {selected}.")


def _table(parts: Result) -> pd.DataFrame:
    values = parts.values
    table = heads_frame(
        {
            "k, both": values["largest_offset"][BOTH],
            "P(k), both": values["largest_mass"][BOTH],
            "k, position only": values["largest_offset"][POSITION],
            "P(k), position only": values["largest_mass"][POSITION],
            "1 to 0, position only": values["first_mass"][POSITION],
            "P(1), position only": values["profile"][POSITION, ..., 1],
        }
    )
    return table.sort_values("P(k), position only", ascending=False, ignore_index=True)


def draw_look_back(parts: Result, selection: Selection) -> None:
    """Draw how far back every head looks, and the chosen one's diagonals."""
    shown = parts.only("largest_offset", "largest_mass", "first_mass", "profile")
    figure = partial(look_back_figure, parts, selection.layer, selection.head)

    def draw() -> None:
        look_back_table(shown, selection.cell)
        chart("look-back", figure())

    card("lookback", figure, shown, words.LOOK_BACK, "Look-back heads", draw)


def draw_first(zero: Result, parts: Result, selection: Selection) -> None:
    """Draw the exception of position 0."""
    one = selection.of(parts)
    alone, both = one.select(condition=1), one.select(condition=0)
    st.markdown(
        f"**{selection.cell}** attends from position 1 to position 0 with "
        f"{value_text(alone, 'first_mass')} by position only and {value_text(both, 'first_mass')} "
        f"with both; to the previous token elsewhere with "
        f"{value_text(alone.select(offset=1), 'profile')} and "
        f"{value_text(both.select(offset=1), 'profile')}."
    )
    st.markdown(
        "Probability of [B] after the last [A], by what the sequence begins with and where the "
        "first [A] stands:"
    )
    layer, head = strongest(np.nan_to_num(zero.values["candidate_attention"]).max(axis=0))
    for number, (column, case) in enumerate(zip(st.columns(3), zero.words("cases"), strict=True)):
        _draw_case(column, case, zero.select(case=number))
    figure = partial(position_zero_figure, zero, layer, head)
    shown = zero.select(layer=layer, head=head)
    card("zero", figure, shown, words.FIRST)


def _draw_case(column: Any, case: str, one: Result) -> None:
    """Draw the probability of [B] in one case; a model without a start token has no first one."""
    probability, error = (float(part["probability"]) for part in (one.values, one.errors))
    text = "no start token" if np.isnan(probability) else rounded(probability, error)
    draw_metric(column, case, text, "probability of [B] after the last [A]")
