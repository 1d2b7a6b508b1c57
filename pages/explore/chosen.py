"""The heads that a reader chooses with a loop, with a box or by name; their table."""

import re
from collections.abc import Sequence
from typing import Final

import pandas as pd
import streamlit as st

from pages.shared.cards.plain import say_error
from pages.shared.selection.fit import linked
from pages.shared.selection.links import write
from pages.shared.selection.pins import HELP, add_pins, compare_link, pin_of
from pages.shared.selection.selection import Selection, select_head
from pages.shared.tables.tables import choice_table
from poskernel_core.analyses.comparison.pins import MAX_PINS
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import head_name, parse_cell
from poskernel_core.common.rounding import counted
from poskernel_core.plotting.head_scatter import Column, Head

KEY = "heads"
ROWS: Final = (
    "The mark before a row selects its head on every page; the head's name opens «Overview»."
)
MAX_CHARACTERS = 30_000
"""Length limit of the field, because the address can hold no more."""


def choose_by_hand(names: list[str], many: bool) -> None:
    """Choose the heads in a loop or a box; a click selects its head on every page. A callback."""
    if many:
        write(KEY, " ".join(names))
    else:
        select_head(names[0])


def _read(selection: Selection) -> tuple[set[Head], str]:
    """Return the heads in the field, and an error about the first invalid name."""
    geometry = selection.located.geometry
    found, wrong = set(), ""
    for name in re.split(r"[\s,;]+", st.session_state.get(KEY) or ""):
        if not name:
            continue
        try:
            found.add(parse_cell(name, geometry.n_layers, geometry.n_heads))
        except BadRequest as error:
            wrong = wrong or str(error)
    return found, wrong


def draw_names(selection: Selection) -> list[Head]:
    """Draw the field with the names of the chosen heads; return them in order."""
    row = st.container(horizontal=True, vertical_alignment="bottom")
    row.text_input(
        "Heads chosen",
        max_chars=MAX_CHARACTERS,
        placeholder="draw, or type L0H3 L2H6",
        **linked(KEY),
    )
    chosen, wrong = _read(selection)
    row.button(
        "Choose none",
        on_click=write,
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
    if len(chosen) > MAX_PINS:
        st.caption(f"{len(chosen)} heads are chosen: choose {MAX_PINS} or fewer to pin them.")
    if wrong:
        say_error(wrong)
    return sorted(chosen)


def draw_table(
    selection: Selection, chosen: list[Head], columns: dict[str, Column], told: Sequence[Column]
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
    first = list(dict.fromkeys([*told, *columns.values()]))
    table = pd.DataFrame({"head": [head_name(*head) for head in heads]})
    formats = {}
    for column in first:
        heading = column.heading
        if column.labels:
            table[heading] = [column.text(head) for head in heads]
        else:
            table[heading] = [float(column.values[head]) for head in heads]
            formats[heading] = st.column_config.NumberColumn(format="%.4g")
    choice_table(table, "explored", select_head, formats)
