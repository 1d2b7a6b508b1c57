"""The grid of all heads, coloured by one number between 0 and its largest."""

from __future__ import annotations

import numpy as np
import streamlit as st

from pages.parts.figures.layout import number
from pages.parts.figures.palette import scale_hex
from pages.parts.grid import head_grid
from pages.parts.head import value_text
from pages.parts.head_choice import pick_head
from pages.parts.selection import Selection
from poskernel_core.analyses.base import Result
from poskernel_core.config import cell_name

__all__ = ["draw_measure_grid"]

STEPS = 121


def draw_measure_grid(
    measured: Result, name: str, meaning: str, selection: Selection, key: str
) -> None:
    """Draw ``measured.values[name] [layer, head]``; a click selects the head on every page."""
    values = np.nan_to_num(measured.values[name])
    high = max(0.01, float(values.max()))
    labels = [
        [f"{cell_name(i, j)}: {meaning} {_text(measured, name, i, j)}" for j in range(len(row))]
        for i, row in enumerate(values)
    ]
    legend = scale_hex(np.linspace(0, 1, STEPS)[None])[0]
    ticks = {0: 0.0, STEPS // 2: high / 2, STEPS - 1: high}
    head_grid(
        scale_hex(np.clip(values, 0, high) / high),
        labels,
        [["" for _ in row] for row in values],
        [[False for _ in row] for row in values],
        (selection.layer, selection.head),
        key=key,
        on_select=lambda: _selected(key),
        legend=[
            (colour, number(float(f"{ticks[i]:.2g}")) if i in ticks else "")
            for i, colour in enumerate(legend)
        ],
        legend_title=meaning,
    )


def _text(measured: Result, name: str, layer: int, head: int) -> str:
    return value_text(measured.only(name).select(layer=layer, head=head), name)


def _selected(key: str) -> None:
    cell = st.session_state[key].cell
    if cell:
        pick_head(cell)
