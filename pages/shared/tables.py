"""A table with a row that can be chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st
from pandas.io.formats.style import Styler

from poskernel_core.common.result import Result
from poskernel_core.common.rounding import rounded, texts_of

__all__ = ["choice_table", "rounded_table"]

ROWS_SHOWN = 10


def rounded_table(table: pd.DataFrame, result: Result, columns: dict[str, str]) -> Styler:
    """Return a table whose ``columns`` show a result's values rounded to their errors.

    They still sort as numbers. ``columns`` says which value each of them holds.
    """

    def reader(name: str) -> Callable[[float], str]:
        texts = texts_of(result, name)
        words = dict(zip(result.values[name].ravel().tolist(), texts.ravel(), strict=True))
        return lambda value: words.get(float(value), rounded(float(value)))

    return table.style.format({column: reader(name) for column, name in columns.items()})


def choice_table(
    table: pd.DataFrame | Styler,
    key: str,
    pick: Callable[[Any], None],
    columns: dict[str, Any] | None = None,
    rows: int = ROWS_SHOWN,
) -> None:
    """Draw a table; a click on a row calls ``pick`` with what its first column holds.

    The mark of a row is removed again (the table is drawn as a new one): else a click on it, after
    another choice was made elsewhere, would only unmark it.
    """
    turn = st.session_state.setdefault(f"{key}-turn", 0)
    plain = table.data if isinstance(table, Styler) else table
    offered = plain.iloc[:, 0].tolist()

    def chosen() -> None:
        found = st.session_state[f"{key}-{turn}"].selection.rows
        if found:
            st.session_state[f"{key}-turn"] = turn + 1
            pick(offered[found[0]])

    with st.container(key=key):
        st.dataframe(
            table,
            hide_index=True,
            column_config=columns or {},
            key=f"{key}-{turn}",
            on_select=chosen,
            selection_mode="single-row",
            height=38 + 35 * max(1, min(len(plain), rows)),
        )
