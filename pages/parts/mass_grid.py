"""The grid of all heads, coloured by the change of their attention to the previous token."""

from __future__ import annotations

import numpy as np
import streamlit as st

from pages.parts.figures.layout import number
from pages.parts.figures.palette import DIVERGING, scale_rgb
from pages.parts.grid import head_grid
from pages.parts.selection import Selection, select_cell
from poskernel_core.analyses.base import Result
from poskernel_core.config import cell_name

__all__ = ["draw_mass_grid"]

KEY = "mass-grid"
STEPS = 121
NAME = "previous_mass_change"


def draw_mass_grid(masses: Result, selection: Selection) -> None:
    """Draw every head's change; a click selects the head on every page."""
    change = masses.values[NAME]
    reach = _reach(change)
    cells = [[_label(masses, i, j) for j in range(change.shape[1])] for i in range(len(change))]
    blank = [["" for _ in row] for row in cells]
    head_grid(
        _hex(0.5 + 0.5 * np.nan_to_num(change) / reach),
        cells,
        blank,
        [[False for _ in row] for row in cells],
        (selection.layer, selection.head),
        key=KEY,
        on_select=_selected,
        legend=_legend(reach),
        legend_title="change of the attention to the previous token",
    )


def _selected() -> None:
    cell = st.session_state[KEY].cell
    if cell:
        select_cell(cell)


def _reach(change: np.ndarray) -> float:
    return max(0.01, float(np.abs(np.nan_to_num(change)).max()))


def _label(masses: Result, layer: int, head: int) -> str:
    clean = float(masses.values["clean_previous_mass"][layer, head])
    changed = float(masses.values["changed_previous_mass"][layer, head])
    return (
        f"{cell_name(layer, head)}: attention to the previous token {clean:.3f} clean, "
        f"{changed:.3f} changed"
    )


def _hex(t: np.ndarray) -> list[list[str]]:
    return [[f"#{bytes(rgb).hex()}" for rgb in row] for row in scale_rgb(t, DIVERGING)]


def _legend(reach: float) -> list[tuple[str, str]]:
    colours = _hex(np.linspace(0, 1, STEPS)[None])[0]
    labels = [""] * STEPS
    for place, value in ((0, -reach), (STEPS // 2, 0.0), (STEPS - 1, reach)):
        labels[place] = number(float(f"{value:.2g}"))
    return list(zip(colours, labels, strict=True))
