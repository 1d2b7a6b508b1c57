"""The clickable grid of all heads, coloured by a measure."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import streamlit as st
from cachetools import LRUCache, cached

from pages.instrument.parts import draw_grid
from pages.shared.cards.card import keep_grid
from pages.shared.cards.figure import dark
from pages.shared.grid.measures import Measure
from pages.shared.jobs import results
from pages.shared.look.component import room
from pages.shared.selection.selection import Selection, select_head
from poskernel_core.analyses.measures import one_a_head
from poskernel_core.common.errors import PosKernelError
from poskernel_core.common.heads import head_name, layer_of
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import texts_of
from poskernel_core.models.catalog import Located
from poskernel_core.models.known import known_heads
from poskernel_core.plotting.grid_cells import grid_data
from poskernel_core.plotting.palette import NO_VALUE
from poskernel_core.plotting.shades import Shade

KNOWN: Final = "★"
"""Marks a head with a known function."""

MAX_GRIDS: Final = 64
"""Small grids in the cache, of some ten kilobytes each."""

ROOMY: Final = (32, 16)
"""Most layers and heads for which a cell of the small grid has room for a kernel."""


@dataclass(frozen=True)
class Extras:
    """What a grid shows besides colours; lists are indexed ``[layer][head]``.

    Attributes:
        marks: a small glyph in the cell; ``glyphs`` explains them.
        dimmed: whether the cell is filtered out.
        columns: the order of each layer's heads.
        curves: returns the kernels to show in place of the marks, as ``compact_curves`` does.
    """

    marks: list[list[str]] | None = None
    dimmed: list[list[bool]] | None = None
    columns: list[list[int]] | None = None
    glyphs: list[tuple[str, str]] = field(default_factory=list)
    curves: Callable[[], dict[str, Any]] | None = None


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

    shared = pick is select_head

    def selected() -> None:
        cell = st.session_state[key].cell
        if cell and layer_of(cell) not in bare:
            pick(cell)

    def data(shade: Shade) -> dict[str, Any]:
        cells = grid_data(
            shade.colours,
            labels,
            extras.marks or [["" for _ in row] for row in labels],
            extras.dimmed or [[False for _ in row] for row in labels],
            extras.columns,
            kernels=extras.curves is not None,
        )
        legend = {"legend": shade.legend, "legendTitle": unit, "glyphs": extras.glyphs}
        return cells | legend | {"shared": shared, "bare": list(bare)}

    curves = extras.curves
    keep_grid(lambda: data(shade) | ({"curves": curves()} if curves else {}))
    rows, columns = len(labels), len(labels[0])
    spacing = (columns <= 24) + (columns <= 40)
    with room(key, 68 + rows * (max(14, min(34, 400 // rows)) + spacing)):
        draw_grid(key, data(shade.on(dark())), on_cell_change=selected)


def all_heads(selection: Selection, measure: Measure) -> dict[str, Any]:
    """Return the small grid of all heads, coloured by a measure if its result is stored."""
    return _small_grid(selection.located, _stored(selection, measure), measure)


def _seen(located: Located, measured: Result | None, measure: Measure) -> tuple[Any, ...]:
    result = None if measured is None else measured.fingerprint
    return located.spec.name, located.spec.fingerprint, measure.declared.title, result, dark()


@cached(LRUCache(MAX_GRIDS), key=_seen, lock=threading.Lock())
def _small_grid(located: Located, measured: Result | None, measure: Measure) -> dict[str, Any]:
    geometry, known = located.geometry, known_heads(located.spec.name)
    layers, heads = geometry.n_layers, geometry.n_heads
    names = [[head_name(i, j) for j in range(heads)] for i in range(layers)]
    marks = [[KNOWN if name in known else "" for name in row] for row in names]
    plain = [[False] * heads] * layers
    if measured is None:
        said, shade = "not computed yet", Shade([[NO_VALUE] * heads] * layers, [])
        labels = [[f"{name}: {measure.declared.title} {said}" for name in row] for row in names]
    else:
        values = measured.values[measure.declared.value].astype(float)
        shade = measure.shade(measured, values).on(dark())
        labels = head_texts(measured, measure.declared.value, measure.declared.title)
    roomy = layers <= ROOMY[0] and heads <= ROOMY[1]
    data = grid_data(shade.colours, labels, marks, plain, None, kernels=roomy)
    data |= {"legend": shade.legend, "legendTitle": measure.declared.unit, "glyphs": []}
    return data | {"shared": True, "small": True, "bare": list(geometry.reasons)}


def _stored(selection: Selection, measure: Measure) -> Result | None:
    """Return the numbers of all heads by a measure, if they are stored."""
    try:
        request = results.plan(measure.question, selection.run, measure.params(selection))
        result = results.newest(request, selection.query)
        return (
            None if result is None else one_a_head(measure.declared, result, query=selection.query)
        )
    except PosKernelError:
        return None


def head_texts(measured: Result, name: str, meaning: str) -> list[list[str]]:
    """Return for every head its name, the meaning, and the value with its error or label."""
    words = measured.text_of(name) if name in measured.labels else texts_of(measured, name)
    return [
        [f"{head_name(i, j)}: {meaning} {text}" for j, text in enumerate(row)]
        for i, row in enumerate(words)
    ]
