"""Explore: all heads as points, on two measures or by their kernels, coloured by a measure."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from pages.explore.arranged import (
    BY_MEASURES,
    FIRST,
    KERNELS,
    LABELS,
    Arranged,
    arrangements,
    by_kernels,
    by_measures,
    by_places,
    deciding_columns,
    our_columns,
)
from pages.shared.cards.card import card
from pages.shared.cards.figure import chart
from pages.shared.cards.plain import capital, plain, say_error
from pages.shared.choices.choices import choose, chosen
from pages.shared.choices.fit import choose_one, fitted_flag, fitted_text
from pages.shared.grid.measures import MEASURES
from pages.shared.jobs import results
from pages.shared.jobs.pressed import nothing_new
from pages.shared.look.component import room
from pages.shared.selection.head_link import page_address
from pages.shared.selection.pins import HELP, add_pins, compare_link, pin_of
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection, select_head
from pages.shared.tables.tables import choice_table, worded_table
from poskernel_core.analyses.comparison.pins import MAX_PINS
from poskernel_core.analyses.head_measures.spec import HeadMeasures, HeadMeasuresParams
from poskernel_core.analyses.kernels.etc import EtcHeatMap, EtcParams, stands
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import head_name, parse_cell
from poskernel_core.common.rounding import counted
from poskernel_core.common.settings import settings
from poskernel_core.data.head_tables import MAX_TABLE_BYTES, HeadTable, parse_head_table
from poskernel_core.plotting.head_scatter import Column, Head, head_scatter, shown_on
from poskernel_core.plotting.layout import TITLE, set_title

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
        others = [len(content) for name, content in kept.items() if name != file.name]
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
        for name in [stored_name for stored_name in kept if stored_name not in there]:
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
    table: HeadTable = held[2]
    return table


def _scale(values: np.ndarray) -> str:
    return "diverging" if np.nanmin(values, initial=0) < 0 else "linear"


KEY = "heads"
ROWS: Final = "Tick a row to select its head on every page; the head's name opens «Overview»."
MAX_CHARACTERS = 30_000
"""Length limit of the field, because the address can hold no more."""


def choose_by_hand(names: list[str], many: bool) -> None:
    """Choose the heads in a loop or a box; a click selects its head on every page. A callback."""
    if many:
        choose(KEY, " ".join(names))
    else:
        select_head(names[0])


def _read(selection: Selection) -> tuple[set[Head], str]:
    """Return the heads in the field, and an error about the first invalid name."""
    geometry = selection.located.geometry
    heads, wrong = set(), ""
    for name in re.split(r"[\s,;]+", chosen(KEY, "")):
        if not name:
            continue
        try:
            heads.add(parse_cell(name, geometry.n_layers, geometry.n_heads))
        except BadRequest as error:
            wrong = wrong or str(error)
    return heads, wrong


def draw_names(selection: Selection) -> list[Head]:
    """Draw the field with the names of the chosen heads; return them in order."""
    row = st.container(horizontal=True, vertical_alignment="bottom")
    row.text_input(
        "Heads chosen",
        placeholder="draw, or type L0H3 L2H6",
        **fitted_text(KEY, most=MAX_CHARACTERS),
    )
    chosen, wrong = _read(selection)
    row.button(
        "Choose none",
        on_click=choose,
        args=(KEY, ""),
        disabled=not chosen,
        icon=":material/close:",
    )
    row.button(
        "Pin these heads",
        on_click=add_pins,
        args=[pin_of(selection, head_name(*head)) for head in sorted(chosen)],
        disabled=not 0 < len(chosen) <= MAX_PINS,
        icon=":material/keep:",
        help=HELP,
    )
    compare_link()
    if chosen:
        heads = ", ".join(head_name(*head) for head in sorted(chosen))
        address = page_address("interventions", manyheads=heads)
        st.markdown(f"[Silence these heads on many texts]({address}#many-texts)")
    if len(chosen) > MAX_PINS:
        st.caption(f"{len(chosen)} heads are chosen: choose {MAX_PINS} or fewer to pin them.")
    if wrong:
        say_error(wrong)
    return sorted(chosen)


def draw_table(
    selection: Selection,
    chosen: list[Head],
    columns: dict[str, Column],
    hover_columns: Sequence[Column],
) -> None:
    """List the chosen heads, or all if there are none; what their points tell comes first."""
    geometry = selection.located.geometry
    every = [(layer, head) for layer in geometry.with_heads for head in range(geometry.n_heads)]
    heads = chosen or every
    st.markdown(
        f"**{len(chosen)} of {counted(len(every), 'head')}.** {ROWS}"
        if chosen
        else f"{counted(len(every), 'head')} in all. {ROWS}"
    )
    first = list(dict.fromkeys([*hover_columns, *columns.values()]))
    table = pd.DataFrame({"head": [head_name(*head) for head in heads]})
    words: dict[str, dict[float, str]] = {}
    for column in first:
        texts = [column.text(head) for head in heads]
        numbers = [float(column.values[head]) for head in heads]
        table[column.heading] = texts if column.labels else numbers
        if not column.labels:
            words[column.heading] = dict(zip(numbers, texts, strict=True))
    choice_table(worded_table(table, words), "explored", select_head)


PLACE = Place(
    "Explore",
    "Each point is a head. Draw a loop or a box around some of them to list them below.",
    questions=("headvis", "head-examples", "near-kernels", "place-and-content"),
)

TOOLS: Final = {"loop": "lasso", "box": "select", "click": "pan"}
"""Plotly's drag modes; its clicks select heads only in the mode ``pan``."""


def draw_points(
    selection: Selection, arranged: Arranged, chosen: list[Head], faint: np.ndarray | None
) -> None:
    """Draw the card with all heads as points."""
    x, y, colour, hover_columns = arranged.x, arranged.y, arranged.colour, arranged.hover_columns
    at = (selection.layer, selection.head)

    def figure() -> go.Figure:
        made = head_scatter(
            x, y, colour, hover_columns=hover_columns, selected=at, chosen=chosen, faint=faint
        )
        return made.update_yaxes(scaleanchor="x") if arranged.one_scale else made

    def draw() -> None:
        clicks = "«click» selects one head on every page"
        tool = choose_one("Choose heads by", TOOLS, "tool", help=clicks)
        clickmode = "event+select" if tool == "click" else "event"
        drawn = figure().update_layout(dragmode=TOOLS[tool], clickmode=clickmode)
        chart("heads", lambda: drawn, titled=True, pick=choose_by_hand)

    def titled() -> go.Figure:
        made = set_title(figure(), arranged.heading)
        return made.update_layout(margin_t=made.layout.margin.t + TITLE)

    card("heads", titled, arranged.result, arranged.words, capital(arranged.heading), draw=draw)
    missing = x.values.size - len(shown_on(x, y))
    if missing:
        st.caption(f"{missing} of {counted(x.values.size, 'head')} not drawn: a value is missing.")


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    offered = arrangements(selection.located.geometry)
    how = choose_one("Arrange heads by", offered, "arrange")
    with st.container(key="axes" if how == BY_MEASURES else "colours"):
        places = st.columns(len(LABELS))
    more = st.container(horizontal=True, vertical_alignment="center", key="more-columns")
    again = more.toggle(
        "Also measures for which the model runs again",
        help="such as the induction score; they take longer the first time",
        width=336,  # known before the browser has drawn it, so that what stands beside stays
        **fitted_flag("again"),
    )
    fade = more.toggle(
        "Fade heads whose kind is not resolved",
        help="the 95 % interval of a number holds a limit of the kinds",
        width=292,
        **fitted_flag("fadepoints"),
    )
    decides = False
    can_tell = how == BY_MEASURES and not nothing_new(selection.located)
    if can_tell and MEASURES[FIRST["x"]].of_texts(selection):
        decides = more.toggle(
            "Also whether one group of texts decides",
            help="its share of the squared error of both measures, in the table and on hover",
            width=324,
            **fitted_flag("decides"),
        )
    params = HeadMeasuresParams(skip=selection.skip, query=selection.query, experiments=again)
    result = results.fetch(HeadMeasures, selection.run, params)
    theirs = their_columns(selection, more)
    if result is None:
        return
    columns = our_columns(result) | theirs
    arranged: Arranged | None
    if how == BY_MEASURES:
        arranged = by_measures(result, columns, places)
    else:
        arranged = (by_kernels if how == KERNELS else by_places)(selection, columns, places)
    if arranged is None:
        return
    hover_columns = arranged.hover_columns
    if decides:
        hover_columns = [*hover_columns, *deciding_columns(selection, [arranged.x, arranged.y])]
    faint = None
    if fade and (etc := results.fetch(EtcHeatMap, selection.run, EtcParams(skip=selection.skip))):
        faint = ~stands(etc.select(query=selection.query))
    points = room("points", 700)
    chosen = draw_names(selection)  # first: it reads the heads of a link
    with points:
        draw_points(selection, replace(arranged, hover_columns=hover_columns), chosen, faint)
    draw_table(selection, chosen, columns, hover_columns)
