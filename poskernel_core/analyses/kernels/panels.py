"""Kernel, observed attention and their difference as maps of one head, and a layer's kernels."""

from typing import Final

import numpy as np
import plotly.graph_objects as go

from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.plotting.maps import (
    Colours,
    difference_colours,
    folded_square,
    kernel_map,
    probability_colours,
)
from poskernel_core.plotting.multiples import small_multiples

PANELS: Final = {
    "kernel": "Kernel",
    "observed": "Observed attention",
    "difference": "Kernel − observed",
}


def panels(found: Result) -> list[str]:
    """Return the panels of a result: without observed attention it has only the kernel."""
    return [*PANELS] if "observed" in found.values else ["kernel"]


def map_panel(found: Result, panel: str) -> go.Figure:
    """Draw one of ``PANELS`` over key and query positions."""
    queries = found.coordinates["query"].astype(np.int64)
    seen = np.isfinite(found.values["kernel"]).any(axis=1)
    cells, colours = _coloured(found, panel, (seen, slice(int(queries[-1]) + 1)))
    return kernel_map(cells, queries[seen], title=PANELS[panel], colours=colours)


def square_panel(head: Result, query: int, panel: str) -> go.Figure:
    """Draw one of ``PANELS`` at a query position, folded to a square."""
    row, colours = _coloured(head, panel, slice(query + 1), int(head.params["skip"]))
    return folded_square(row, title=PANELS[panel], colours=colours)


def _coloured(
    found: Result, panel: str, shown: slice | tuple[np.ndarray, slice], skip: int = 0
) -> tuple[np.ndarray, Colours]:
    """Return the cells of a panel, and its colours: one scale for both probabilities.

    The first ``skip`` keys are blank.
    """
    both = [found.values[each][shown].copy() for each in panels(found)[:2]]
    for each in both:
        each[..., :skip] = np.nan
    if panel == "difference":
        cells = both[0] - both[1]
        return cells, difference_colours(cells, *both)
    return both[[*PANELS].index(panel)], probability_colours(*both)


def layer_panel(layer: Result, number: int, head: int, query: int) -> go.Figure:
    """Draw the kernels of all heads of layer ``number`` by offset, on common axes."""
    seen = slice(int(layer.params["skip"]), query + 1)
    rows = np.ascontiguousarray(layer.values["kernel"][:, seen][:, ::-1])
    labels = [head_name(number, each) for each in range(len(rows))]
    return small_multiples(rows, labels, head, log_y=True)
