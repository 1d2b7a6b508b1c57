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
    """Draw a table; a click on a row calls ``pick`` with what its first column holds."""
    st.session_state[f"{key}-rows"] = table.iloc[:, 0].tolist()

    def chosen() -> None:
        found = st.session_state[key].selection.rows
        if found:
            pick(st.session_state[f"{key}-rows"][found[0]])

    st.dataframe(
        table, hide_index=True, column_config=columns or {}, key=key, on_select=chosen,
        selection_mode="single-row", height=38 + 35 * max(1, min(len(table), rows)),
    )  # fmt: skip
