"""A reader's own tables of heads, kept for the session, as columns beside our measures."""

from typing import Any

import numpy as np
import streamlit as st

from pages.shared.cards.plain import plain, say_error
from pages.shared.selection.selection import Selection
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.settings import settings
from poskernel_core.data.head_tables import MAX_TABLE_BYTES, HeadTable, parse_head_table
from poskernel_core.plotting.head_scatter import Column

KEPT, HELD, UPLOADED = "their-tables", "their-tables-held", "tables-uploaded"
LEFT_OUT = "their-tables-left-out"
MAX_TABLES = 8
FORMATS = (
    'HeadVis (`scatter_data.json`), retrieval heads (JSON with `"layer-head"` as keys), '
    "DuoAttention (`full_attention_heads.tsv`), or any CSV or JSON table with the columns `layer` "
    "and `head`, counted from 0. A table is kept for your session only, and nobody else sees it."
)


def _keep() -> None:
    """Store the uploaded files, and drop those just removed from the field. A callback."""
    kept, held = st.session_state.setdefault(KEPT, {}), st.session_state[UPLOADED]
    for name in st.session_state.get(HELD, set()) - {file.name for file in held}:
        kept.pop(name, None)
    left_out = []
    for file in held:
        data = file.getvalue()
        others = [len(each) for name, each in kept.items() if name != file.name]
        if len(others) < MAX_TABLES and sum(others) + len(data) <= _most_bytes():
            kept[file.name] = data
        else:
            left_out.append(file.name)
    st.session_state[LEFT_OUT] = left_out
    st.session_state[HELD] = {file.name for file in held}


def _most_bytes() -> int:
    return settings().max_tables_mb * 2**20


def _remove(name: str) -> None:
    st.session_state[KEPT].pop(name, None)
    st.session_state[LEFT_OUT] = []


def their_columns(selection: Selection, place: Any) -> dict[str, Column]:
    """Draw the list and the upload of tables into ``place``; return their columns.

    Errors of tables are shown below.
    """
    kept: dict[str, bytes] = st.session_state.get(KEPT, {})
    columns: dict[str, Column] = {}
    with place.popover("Tables of others", icon=":material/table:", width="content"):
        st.markdown(FORMATS)
        held = st.file_uploader(
            "Compare tables with ours",
            type=["json", "csv", "tsv", "txt"],
            accept_multiple_files=True,
            key=UPLOADED,
            on_change=_keep,
            max_upload_size=min(MAX_TABLE_BYTES, _most_bytes()) // 2**20,
            help=f"up to {MAX_TABLES} files, {settings().max_tables_mb} MB together",
        )
        there = {file.name for file in held}
        st.session_state[HELD] = there  # the field is empty after another page was open
        for name in [each for each in kept if each not in there]:
            st.button(
                f"Remove {plain(name)}",
                icon=":material/close:",
                key=f"remove-{name}",
                on_click=_remove,
                args=(name,),
            )
    for name in st.session_state.get(LEFT_OUT, ()):
        say_error(
            f"{name} is left out: this server takes up to {MAX_TABLES} tables of "
            f"{settings().max_tables_mb} MB together; remove others first."
        )
    for name, data in kept.items():
        columns |= _draw(name, data, selection)
    return columns


def _draw(name: str, data: bytes, selection: Selection) -> dict[str, Column]:
    geometry = selection.located.geometry
    try:
        table = _parsed(name, data, (geometry.n_layers, geometry.n_heads))
    except BadRequest as error:
        say_error(str(error))
        return {}
    model = f", of {plain(table.model)}" if table.model else ""
    names = ", ".join(plain(column) for column in table.columns)
    st.caption(f"**{plain(table.source)}**, {plain(table.kind)}{model}: {names}")
    source = f"{table.source} ({table.model})" if table.model else table.source
    return {
        f"{title}, {table.source}": Column(title, "", values, scale=_scale(values), source=source)
        for title, values in table.columns.items()
    }


def _parsed(name: str, data: bytes, shape: tuple[int, int]) -> HeadTable:
    """Return a parsed table, from the cache if file and shape are the same."""
    known = st.session_state.setdefault("their-tables-parsed", {})
    held = known.get(name)
    if held is None or held[:2] != (data, shape):
        known[name] = held = (data, shape, parse_head_table(data, name, shape))
    found: HeadTable = held[2]
    return found


def _scale(values: np.ndarray) -> str:
    return "diverging" if np.nanmin(values, initial=0) < 0 else "linear"
