"""A table with a row that can be chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

__all__ = ["choice_table"]

ROWS = 10


def choice_table(
    table: pd.DataFrame,
    key: str,
    pick: Callable[[Any], None],
    columns: dict[str, Any] | None = None,
    rows: int = ROWS,
) -> None:
    """Draw a table; a click on a row calls ``pick`` with what its first column holds.

    A click on the row that is marked already takes the mark away; it is a choice as well, because
    another may have been made elsewhere meanwhile.
    """
    st.session_state[f"{key}-rows"] = table.iloc[:, 0].tolist()

    def chosen() -> None:
        offered = st.session_state[f"{key}-rows"]
        found = st.session_state[key].selection.rows or st.session_state.get(f"{key}-last", [])
        st.session_state[f"{key}-last"] = found
        if found and found[0] < len(offered):
            pick(offered[found[0]])

    st.dataframe(
        table, hide_index=True, column_config=columns or {}, key=key, on_select=chosen,
        selection_mode="single-row", height=38 + 35 * max(1, min(len(table), rows)),
    )  # fmt: skip
