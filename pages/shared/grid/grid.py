"""The clickable layer x head grid: an inline component with real `role=grid` semantics.

Plotly's heat maps deliver no clicks in Streamlit, and no chart can be walked with the keyboard.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

from pages.shared.look.component import component
from poskernel_core.common.heads import head_name
from poskernel_core.plotting.palette import NO_VALUE, ink_on

_COMPONENT = component("head_grid", Path(__file__).parent, "grid", "<div class='head-grid'></div>")


def head_grid(data: dict[str, Any], *, key: str, on_select: Callable[[], None]) -> Any:
    """Draw the grid; `.cell` of the result, and `st.session_state[key].cell`, is "L3H7" or None.

    `data` comes from `grid_data`. Added to it are the name of the `selected` head, the `legend` and
    its `legendTitle`, and the `glyphs` explained below the grid. `on_select` runs when another head
    is picked.
    """
    if key in st.session_state:
        # Follow a selection made elsewhere, so that the old cell can be picked again.
        st.session_state[key]["cell"] = data["selected"]
    return _COMPONENT(key=key, data=data, on_cell_change=on_select)


def grid_data(
    colours: list[list[str]],
    labels: list[list[str]],
    marks: list[list[str]],
    dimmed: list[list[bool]],
    columns: list[list[int]] | None,
    curves: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what the browser draws: `rows` of cells in the order shown, and column `headers`.

    All cell lists are indexed [layer][head]: `colours` as '#rrggbb', `labels` for hover and screen
    readers, `marks` a small glyph or "", `dimmed` whether the cell is filtered out. `columns` is
    the order of each layer's heads. `curves`, made by `compact_curves`, replace the marks.
    """
    heads = range(len(colours[0]))
    rows = []
    for layer, cells in enumerate(zip(colours, labels, marks, dimmed, strict=True)):
        drawn = [
            {
                "name": head_name(layer, head),
                "colour": colour,
                "label": f"{label} (filtered out)" if dim else label,
                "missing": colour == NO_VALUE,
                "mark": mark,
                "ink": ink_on(colour) if mark or curves is not None else "",
                "dimmed": dim,
            }
            for head, (colour, label, mark, dim) in enumerate(zip(*cells, strict=True))
        ]
        rows.append(drawn if columns is None else [drawn[head] for head in columns[layer]])
    headers = [f"H{head}" if columns is None else f"{head + 1}." for head in heads]
    data = {"rows": rows, "headers": headers, "corner": "" if columns is None else "rank"}
    return data if curves is None else data | {"curves": curves}
