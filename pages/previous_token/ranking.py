"""The table of all heads by their diagonals, and the post's ranking."""

import numpy as np
import pandas as pd
import streamlit as st

from pages.shared.selection.fit import fitted, linked
from pages.shared.selection.head_link import page_address
from pages.shared.selection.selection import select_head
from pages.shared.tables.tables import (
    choice_table,
    errors_line,
    heads_frame,
    linked_table,
    number_columns,
    rounded_table,
)
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.ledger.published import PREVIOUS_TOKEN_GPT2, PREVIOUS_TOKEN_HEADS_GPT2

KEY = "ranking-table"
COLUMNS = {
    "ratio": "second / largest",
    "largest_offset": "largest at k",
    "previous_mass": "P(1)",
    "self_contrast": "contrast at 0 (nats)",
    "previous_contrast": "contrast at 1 (nats)",
    "position_advantage": "by position (nats)",
    "content_advantage": "by content (nats)",
    "unrepeated_mass": "token differs",
    "repeated_mass": "token repeats",
}
HELP = {
    "second / largest": "second-largest diagonal of the mean attention over the largest",
    "largest at k": "offset of the largest diagonal, tokens",
    "P(1)": "mean attention to the previous token",
    "contrast at 0 (nats)": "raw score of the own token, less that of its neighbours",
    "contrast at 1 (nats)": "raw score of the previous token, less that of its neighbours",
    "by position (nats)": "what position adds to the previous token's score over the own token's",
    "by content (nats)": "what content adds to the previous token's score over the own token's",
    "token differs": "attention to the previous token where the token differs from it",
    "token repeats": "attention to the previous token where the token repeats it",
}
GPT2 = {"model": "gpt2", "revision": "", "checkpoint": "", "context": ""}
"""Parameters of links to the post's model."""


def ranked_table(ranked: Result, selected: str) -> None:
    """Draw every head as a row, cleanest first; a click on a row selects the head."""
    left, right = st.columns([2, 3], vertical_alignment="bottom")
    last = ranked.values["profile"].shape[-1] - 1
    back = left.number_input(
        "Look back k (tokens)",
        help="shows P(k) of every head as a column",
        **fitted("back", range(last + 1), 1),
    )
    only = right.toggle(
        f"Only heads whose largest diagonal is k = {back}", False, **linked("onlyback")
    )
    table = _table(ranked, back, only)
    if table.empty:
        st.info(f"No head of this model has its largest diagonal at k = {back}.")
        return
    numbers = number_columns(HELP)
    named = {label: name for name, label in COLUMNS.items() if name != "largest_offset"}
    if back != 1:
        told = f"mean attention to the token {back} places back"
        numbers |= number_columns({f"P({back})": told}, "%.3f")
    choice_table(rounded_table(table, ranked, named), KEY, select_head, numbers)
    order = "second / largest, previous-token heads first" if back == 1 else f"P({back})"
    st.caption(
        f"{counted(len(table), 'head')}, sorted by {order}; scroll for more. Selected: {selected}."
    )
    errors_line(ranked)


def _table(ranked: Result, back: int, only: bool) -> pd.DataFrame:
    columns = {name: np.array(ranked.text_of(name)) for name in ("kind", "diagonal")}
    named = f"P({back})"
    for name, label in COLUMNS.items():
        columns[label] = ranked.values[name]
        if name == "largest_offset":
            columns[named] = ranked.values["profile"][..., back]
    table = heads_frame(columns)
    if only:
        table = table[table["largest at k"] == back]
    if back == 1:
        first = (table["largest at k"] != 1).to_numpy()
        order = np.lexsort((table["second / largest"].to_numpy(), first))
        return table.iloc[order]
    return table.sort_values(named, ascending=False)


def published_table(model: str) -> None:
    """Draw the post's ranking of GPT-2 small, as published."""
    with st.expander("Published for GPT-2 small", expanded=model == "gpt2"):
        previous, heads = PREVIOUS_TOKEN_HEADS_GPT2
        st.markdown(
            "On the texts that the post chose, the largest diagonal is the previous token in "
            f"{previous} of {heads} heads. The post's ranking by second / largest:"
        )
        ranking = {"head": list(PREVIOUS_TOKEN_GPT2), "published": PREVIOUS_TOKEN_GPT2.values()}
        linked_table(
            pd.DataFrame(ranking),
            "published-ranking",
            addresses=[page_address("head", cell, **GPT2) for cell in PREVIOUS_TOKEN_GPT2],
            width="content",
        )
