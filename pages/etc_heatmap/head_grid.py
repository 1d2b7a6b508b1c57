"""The landing page's grid: any measure as colour, the kinds of the kernels as marks and filter."""

from enum import StrEnum
from typing import Any

import numpy as np
import streamlit as st

from pages.shared.grid.measure_grid import Extras, draw_heads, head_texts
from pages.shared.grid.measures import Measure
from pages.shared.selection.fit import linked
from pages.shared.selection.selection import Selection, select_head
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted, texts_of
from poskernel_core.models.known import known_heads
from poskernel_core.plotting.palette import KIND_LOOKS
from poskernel_core.plotting.sparklines import compact_curves

KNOWN = "★"
CURVES = "kernel by offset (log spacing), each as high as its largest value; larger on hover"


class Order(StrEnum):
    """Orders of the heads within each layer."""

    NUMBER = "by number"
    LARGEST = "largest first"
    SMALLEST = "smallest first"


def kind_thresholds() -> dict[str, Any]:
    """Draw the thresholds of the kinds and return them as parameters of the analysis."""
    tokens = st.slider("Last tokens that count as local", 1, 64, 10, **linked("ltok"))
    local = st.slider(
        "Mass in them that makes a head local", 0.0, 1.0, 0.5, 0.05, **linked("lshare")
    )
    uniform = st.slider(
        "Effective token count over visible keys that makes a head uniform",
        0.0,
        1.0,
        0.5,
        0.05,
        **linked("ushare"),
    )
    return {"local_tokens": tokens, "local_share": local, "uniform_share": uniform}


def draw_grid(
    measure: Measure,
    found: Result,
    etc: Result,
    selection: Selection,
    shown: set[str],
    order: Order,
    kernels: Result | None = None,
) -> None:
    """Draw all heads by a measure; a click selects the head on every page.

    ``found`` holds the measure, one number a head; ``etc`` the kinds at the query position;
    ``kernels`` those of all heads there, for the cells to show them in place of the kinds.
    """
    kinds: list[list[str | None]] = etc.text_of("kind")
    known = known_heads(selection.run.model.name)
    values = found.values[measure.declared.value].astype(float)
    extras = Extras(
        marks=[
            [_mark(kind, known.get(head_name(i, j))) for j, kind in enumerate(row)]
            for i, row in enumerate(kinds)
        ],
        dimmed=[[kind not in shown for kind in row] for row in kinds],
        columns=_columns(values, order),
        glyphs=[
            *((kind.glyph, name) for name, kind in KIND_LOOKS.items()),
            (KNOWN, "known function, named on hover"),
        ]
        if kernels is None
        else [("∿", CURVES)],
        curves=None
        if kernels is None
        else compact_curves(kernels.values["kernel"], selection.query, selection.skip),
    )
    own = (
        head_texts(found, measure.declared.value, measure.declared.title)
        if found.analysis != "etc"
        else None
    )
    query = selection.query
    told = {
        name: texts_of(etc, name) for name in ("etc", "half_mass_distance", "attention_distance")
    }
    labels = [
        [
            _label({n: texts[i, j] for n, texts in told.items()}, query, i, j, kind, known, own)
            for j, kind in enumerate(row)
        ]
        for i, row in enumerate(kinds)
    ]
    shade = measure.shade(found, values)
    draw_heads(shade, labels, measure.declared.unit, selection, "etc-grid", extras, select_head)


def _mark(kind: str | None, function: str | None) -> str:
    return (KIND_LOOKS[kind].glyph if kind else "") + (KNOWN if function else "")


def _label(
    told: dict[str, str],
    query: int,
    layer: int,
    head: int,
    kind: str | None,
    known: dict[str, str],
    own: list[list[str]] | None,
) -> str:
    """Return what a cell says: the measure of another question first, then the kernel."""
    cell = head_name(layer, head)
    first = f"{own[layer][head]}; " if own else f"{cell}: "
    if kind is None:
        return f"{first}no key is visible at this query position"
    text = (
        f"{first}ETC {counted(told['etc'], 'token')} at n = {query}, {kind}, half of the mass "
        f"within offset {told['half_mass_distance']}, total variation distance to the "
        f"attention observed {told['attention_distance']}"
    )
    return text + (f"; {KNOWN} known function: {known[cell]}" if cell in known else "")


def _columns(values: np.ndarray, order: Order) -> list[list[int]] | None:
    if order is Order.NUMBER:
        return None
    signed = values if order is Order.SMALLEST else -values
    return [[int(head) for head in np.argsort(row, kind="stable")] for row in signed]
