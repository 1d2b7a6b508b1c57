"""The grid of all heads, coloured by the change of their attention to the previous token."""

from pages.shared.grid.measure_grid import draw_heads
from pages.shared.grid.shades import diverging
from pages.shared.selection.selection import Selection, select_cell
from poskernel_core.common.heads import cell_name
from poskernel_core.common.result import Result

NAME = "previous_mass_change"


def draw_mass_grid(masses: Result, selection: Selection) -> None:
    """Draw every head's change; a click selects the head on every page."""
    change = masses.values[NAME]
    labels = [[_label(masses, i, j) for j in range(len(row))] for i, row in enumerate(change)]
    unit = "change of the attention to the previous token"
    draw_heads(diverging(change), labels, unit, selection, "mass-grid", pick=select_cell)


def _label(masses: Result, layer: int, head: int) -> str:
    clean = float(masses.values["clean_previous_mass"][layer, head])
    changed = float(masses.values["changed_previous_mass"][layer, head])
    return (
        f"{cell_name(layer, head)}: attention to the previous token {clean:.3f} clean, "
        f"{changed:.3f} changed"
    )
