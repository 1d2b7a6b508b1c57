"""The table of all heads by how far back they look."""

import numpy as np
import pandas as pd
import streamlit as st

from pages.shared.selection.selection import select_cell
from pages.shared.tables.tables import choice_table
from poskernel_core.common.heads import cell_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted

KEY = "look-back-table"
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
        key="lookk",
        bind="query-params",
        default="all",
        required=True,
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
    choice_table(table, KEY, select_cell, columns, rows=8)
    st.caption(f"{counted(len(table), 'head')}; scroll for more. Selected: {selected}.")


def _table(parts: Result) -> pd.DataFrame:
    values = parts.values
    places = list(np.ndindex(*values["first_mass"].shape[1:]))
    table = pd.DataFrame(
        {
            "head": [cell_name(*place) for place in places],
            "k, both": values["largest_offset"][BOTH].ravel(),
            "P(k), both": values["largest_mass"][BOTH].ravel(),
            "k, position only": values["largest_offset"][POSITION].ravel(),
            "P(k), position only": values["largest_mass"][POSITION].ravel(),
            "1 to 0, position only": values["first_mass"][POSITION].ravel(),
            "P(1), position only": values["profile"][POSITION, ..., 1].ravel(),
        }
    )
    return table.sort_values("P(k), position only", ascending=False, ignore_index=True)
