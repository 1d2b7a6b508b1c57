"""The clickable grid of all heads, coloured by a measure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from pages.shared.cards.card import keep_grid
from pages.shared.grid.grid import grid_data, head_grid
from pages.shared.grid.shades import Shade
from pages.shared.selection.selection import Selection, select_head
from poskernel_core.common.heads import head_name, layer_of
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import texts_of


@dataclass(frozen=True)
class Extras:
    """What a grid shows besides colours; lists are indexed ``[layer][head]``.

    Attributes:
        marks: a small glyph in the cell; ``glyphs`` explains them.
        dimmed: whether the cell is filtered out.
        columns: the order of each layer's heads.
        curves: kernels to show in place of the marks, made by ``compact_curves``.
    """

    marks: list[list[str]] | None = None
    dimmed: list[list[bool]] | None = None
    columns: list[list[int]] | None = None
    glyphs: list[tuple[str, str]] = field(default_factory=list)
    curves: dict[str, Any] | None = None


def draw_heads(
    shade: Shade,
    labels: list[list[str]],
    unit: str,
    selection: Selection,
    key: str,
    extras: Extras | None = None,
    pick: Callable[[str], None] = select_head,
) -> None:
    """Draw all heads; a click calls ``pick`` with the head's name: it is selected on every page.

    The row of a layer without heads is empty, says why, and selects nothing.
    """
    extras, bare = extras or Extras(), selection.located.geometry.reasons
    labels = [
        [f"layer {layer} has no heads: it is {bare[layer]}"] * len(row) if layer in bare else row
        for layer, row in enumerate(labels)
    ]

    def selected() -> None:
        cell = st.session_state[key].cell
        if cell and layer_of(cell) not in bare:
            pick(cell)

    data = grid_data(
        shade.colours,
        labels,
        extras.marks or [["" for _ in row] for row in labels],
        extras.dimmed or [[False for _ in row] for row in labels],
        extras.columns,
        extras.curves,
    )
    chosen = selection.cell if pick is select_head else ""
    data |= {"selected": chosen, "legend": shade.legend, "legendTitle": unit}
    data["glyphs"] = extras.glyphs
    keep_grid(data)
    head_grid(data, key=key, on_select=selected)


def head_texts(measured: Result, name: str, meaning: str) -> list[list[str]]:
    """Return for every head its name, the meaning, and the value with its error or label."""
    words = measured.text_of(name) if name in measured.labels else texts_of(measured, name)
    return [
        [f"{head_name(i, j)}: {meaning} {text}" for j, text in enumerate(row)]
        for i, row in enumerate(words)
    ]
