"""Position against token: a head's attention with only one of the two."""

from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from pages.shared.cards.figure import chart
from pages.shared.cards.metric import draw_metrics
from pages.shared.cards.show import show
from pages.shared.choices.fit import choose_one, fitted
from pages.shared.experiments.random_controls import (
    Draws,
    choose_draws,
    choose_number,
    enough_context,
)
from pages.shared.jobs import results
from pages.shared.selection.head_choice import offer_strongest, ranked
from pages.shared.selection.head_link import page_link
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection, select_head
from pages.shared.tables.tables import choice_table, heads_frame, number_columns
from poskernel_core.analyses.position_vs_token.spec import (
    PositionVsToken,
    PositionVsTokenParams,
    PositionZero,
    PositionZeroParams,
)
from poskernel_core.analyses.random_tokens.params import SAMPLES
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted, rounded, value_text

BOTH, POSITION = 0, 1
OFFSETS = {
    "k, both": "offset of the largest diagonal, tokens",
    "k, position only": "the same with positions only",
}
HELP = {
    "P(k), both": "mean attention along it",
    "P(k), position only": "the same with positions only",
    "1 to 0, position only": "attention from position 1 to position 0",
    "P(1), position only": "mean attention to the previous token elsewhere",
}


def look_back_table(parts: Result, selected: str) -> None:
    """Draw every head as a row, most attention first; a click selects the head."""
    table = _table(parts)
    k = table["k, position only"]
    kept = {"all": k >= 0, "k = 0": k == 0, "k = 1": k == 1, "k = 2": k == 2, "k ≥ 3": k >= 3}
    back = choose_one("Heads that look back by position", kept, "lookk")
    table = table[kept[back]].reset_index(drop=True)
    if table.empty:
        st.info(f"No head of this model looks back by {back} with positions only.")
        return
    columns = number_columns(HELP, "%.3f") | number_columns(OFFSETS, "%d")
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
    """Draw the offsets at which heads look back, and the selected head's diagonals."""
    answer = parts.only("largest_offset", "largest_mass", "first_mass", "profile")

    def draw() -> None:
        look_back_table(answer, selection.cell)
        chart("look-back", partial(figure_of, selection.of(answer)), titled=True)

    show("lookback", answer, "Look-back heads", draw)


def draw_first(zero: Result, parts: Result, selection: Selection) -> None:
    """Draw induction from position 0, and its controls."""
    one = selection.of(parts)
    alone, both = one.select(condition=1), one.select(condition=0)
    st.markdown(
        f"**{selection.cell}** attends from position 1 to position 0 with "
        f"{value_text(alone, 'first_mass')} by position only and {value_text(both, 'first_mass')} "
        f"with both. Elsewhere it attends to the previous token with "
        f"{value_text(alone.select(offset=1), 'profile')} by position only and "
        f"{value_text(both.select(offset=1), 'profile')} with both."
    )
    st.markdown(
        "Probability of [B] after the last [A], by the start of the sequence and the position of "
        "the first [A]:"
    )
    layer, head = ranked(np.nan_to_num(zero.values["candidate_attention"]).max(axis=0))[0]
    meaning = "probability of [B] after the last [A]"
    numbers = (zero.values["probability"].tolist(), zero.errors["probability"].tolist())
    texts = [
        "no start token" if np.isnan(value) else rounded(value, error)
        for value, error in zip(*numbers, strict=True)
    ]
    draw_metrics(
        [(case, text, meaning) for case, text in zip(zero.words("cases"), texts, strict=True)]
    )
    show("zero", zero.select(layer=layer, head=head))


PLACE = Place(
    "Position and token",
    "Random sequences with positions and tokens, with positions only, and with tokens "
    "only: which makes a head attend as it does?",
    questions=("position-vs-token", "position-zero"),
)

MAX_LENGTH = 256


def draw_head(parts: Result, selection: Selection, query: int) -> None:
    """Draw the head's scores and patterns in the three runs."""
    one = selection.of(parts)
    row = one.select(query=query)
    left, right = st.columns(2)
    show("scores", row.only("score"), column=left)
    show("attention", row.only("pattern"), column=right)
    show("maps", one.only("pattern"), f"Mean patterns of {selection.cell}")


def draw_page(selection: Selection, draws: Draws) -> None:
    """Draw the results for the chosen sequences."""
    geometry = selection.located.geometry
    left, right = st.columns(2)
    lengths = range(5, min(MAX_LENGTH, geometry.n_ctx) + 1)
    length = choose_number(left, "Length (tokens)", lengths, "plength", 24)
    rows = [*range(2, length)]
    query = right.select_slider("Row n (tokens)", **fitted("pquery", rows, min(8, rows[-1])))
    params = PositionVsTokenParams(length=length, samples=draws.samples)
    parts = results.fetch(PositionVsToken, draws.run, params)
    if parts is None:
        return
    offer_strongest(parts.values["profile"][0, ..., 1], selection, "previous-token head")
    draw_head(parts, selection, query)
    draw_look_back(parts, selection)
    st.subheader(PositionZero.title, anchor="position-0")
    if zero := results.fetch(PositionZero, draws.run, PositionZeroParams(samples=draws.samples)):
        draw_first(zero, parts, selection)


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    geometry = selection.located.geometry
    if geometry.scheme == "rotary":
        st.info(
            "This model has rotary positions and no positional embeddings: *position only* means "
            "content replaced by its mean (except at the start token, which is always the same), "
            "*token only* means no rotation.",
            icon=":material/info:",
        )
    elif geometry.scheme != "learned":
        st.info(
            f"This model has {geometry.scheme} positions, and no positional embeddings: *position "
            "only* means content replaced by its mean, *token only* means without a bias by "
            "distance.",
            icon=":material/info:",
        )
    else:
        st.caption(
            "*Position only* feeds the positional embeddings without tokens. A head whose position "
            f"comes through an MLP or an earlier head ({page_link('position_sources', 'Sources')}) "
            "may lose it then, although position explains its scores on texts."
        )
    if enough_context(selection):
        draw_page(selection, choose_draws(selection, SAMPLES))
