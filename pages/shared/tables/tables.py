"""Tables: in Markdown, with links to heads' pages, with rows to choose, and of words."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import streamlit as st
from pandas.io.formats.style import Styler

from pages.shared.selection.head_link import page_address
from poskernel_core.analyses.definitions import errors_of
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import NO_NUMBER, rounded, texts_of
from poskernel_core.plotting.layout import visible

HEAD: Final = "head"
"""The column of every table that names heads: each name is a link to that head's page."""

NAME_IN_ADDRESS: Final = r"[?&]head=(L\d+H\d+)"
ROWS_SHOWN = 10
WORDS_SHOWN = 8
NUMBER = 70
"""Width in pixels of the numbers beside words, so that they stay visible on a phone."""


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Draw a table of Markdown cells; an error stays beside its sign."""
    lines = [header, [":--"] * len(header), *rows]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    st.markdown(text.replace("± ", "±\N{NO-BREAK SPACE}"))


def number_columns(meanings: dict[str, str], form: str | None = None) -> dict[str, Any]:
    """Return columns of numbers with their help, by title; ``form`` is their printf format."""
    column = st.column_config.NumberColumn
    return {title: column(format=form, help=meaning) for title, meaning in meanings.items()}


def heads_frame(columns: dict[str, np.ndarray]) -> pd.DataFrame:
    """Return a row for every head: its name and its values in ``columns [layer, head]``."""
    names = [head_name(*place) for place in np.ndindex(*next(iter(columns.values())).shape)]
    return pd.DataFrame({HEAD: names} | {label: array.ravel() for label, array in columns.items()})


def rounded_table(table: pd.DataFrame, result: Result, columns: dict[str, str]) -> Styler:
    """Return a table whose ``columns`` show a result's values rounded to their errors.

    The values still sort as numbers. ``columns`` gives the name of the value in each column.
    """
    words = {
        column: dict(
            zip(result.values[name].ravel().tolist(), texts_of(result, name).ravel(), strict=True)
        )
        for column, name in columns.items()
    }
    return worded_table(table, words)


def worded_table(table: pd.DataFrame, words: dict[str, dict[float, str]]) -> Styler:
    """Return a table whose columns show ``words`` in place of their numbers, by which they sort."""

    def reader(known: dict[float, str]) -> Callable[[float], str]:
        return lambda value: known.get(float(value), rounded(float(value)))

    formats: Any = {column: reader(known) for column, known in words.items()}
    return table.style.set_uuid("table").format(formats)


def errors_line(result: Result) -> None:
    """Draw a line that says how the errors above it are computed, if there are any."""
    if error_text := errors_of(result):
        st.caption(error_text)


def linked_table(
    data: pd.DataFrame | Styler,
    key: str,
    columns: dict[str, Any] | None = None,
    addresses: Sequence[str] | None = None,
    **more: Any,
) -> None:
    """Draw a table; names in a column ``head`` link to the pages of these heads.

    ``addresses`` are those of the heads' pages, needed if the heads are of another run than the
    selected one. ``more`` is passed to ``st.dataframe``.
    """
    config = dict(columns or {})
    plain = data.data if isinstance(data, Styler) else data
    if HEAD in plain:
        if addresses is None:
            addresses = [page_address("head", cell) for cell in plain[HEAD]]
        linked = plain.assign(**{HEAD: list(addresses)})
        if isinstance(data, Styler):
            data.data = linked  # cells are formatted by row and column, when drawn
        else:
            data = linked
        config[HEAD] = st.column_config.LinkColumn(
            help="a click on a name opens the head's page «Overview»",
            display_text=NAME_IN_ADDRESS,
            alignment="left",
        )
    st.dataframe(
        data, hide_index=True, column_config=config, key=key, placeholder=NO_NUMBER, **more
    )


def choice_table(
    data: pd.DataFrame | Styler,
    key: str,
    pick: Callable[[Any], None],
    columns: dict[str, Any] | None = None,
    rows: int = ROWS_SHOWN,
    *,
    offered: Sequence[Any] | None = None,
    addresses: Sequence[str] | None = None,
) -> None:
    """Draw a table; choosing a row calls ``pick`` with the row's item of ``offered``.

    ``offered`` is the first column by default. For ``addresses`` see :func:`linked_table`. The mark
    of a row is removed at once (the table is drawn as a new one): otherwise a later click on the
    same row would only remove the mark.
    """
    turn = st.session_state.setdefault(f"{key}-turn", 0)
    plain = data.data if isinstance(data, Styler) else data
    choices = list(offered) if offered is not None else plain.iloc[:, 0].tolist()

    def chosen() -> None:
        row_numbers = st.session_state[f"{key}-{turn}"].selection.rows
        if row_numbers:
            st.session_state[f"{key}-turn"] = turn + 1
            pick(choices[row_numbers[0]])

    with st.container(key=key):
        linked_table(
            data,
            f"{key}-{turn}",
            columns,
            addresses,
            on_select=chosen,
            selection_mode="single-row",
            height=38 + 35 * max(1, min(len(plain), rows)),
        )


def word_lists(result: Result, titles: tuple[str, str], unit: str, key: str) -> None:
    """Draw the tokens with the largest and the smallest numbers (``top``, ``bottom``)."""
    for place, name, title in zip(st.columns(2), ("top", "bottom"), titles, strict=True):
        table = pd.DataFrame(
            {
                title: [visible(word) for word in result.texts[f"{name}_words"]],
                unit: result.values[f"{name}_value"],
            }
        )
        columns = {unit: st.column_config.NumberColumn(format="%.3g", width=NUMBER)}
        height = 38 + 35 * min(WORDS_SHOWN, max(1, len(table)))
        with place:
            linked_table(table, f"{key}-{name}", columns, height=height)


def joined(words: Sequence[str], most: int = 8) -> str:
    """Return tokens in one line, with visible spaces and line breaks."""
    return "  ".join(visible(word) for word in words[:most])
