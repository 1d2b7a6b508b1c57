"""The landing page's grid: a measure as colour, the kinds of kernels as marks and filter."""

from enum import StrEnum
from functools import partial
from typing import Any, Final

import numpy as np
import streamlit as st

from pages.shared.cards.one_head import first_keys
from pages.shared.choices.fit import fitted_number
from pages.shared.grid.measure_grid import KNOWN, Extras, draw_heads, head_texts
from pages.shared.grid.measures import Measure
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.claims import ATTENTION
from poskernel_core.analyses.kernels.etc import EtcParams, stands
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted, texts_of
from poskernel_core.models.known import known_heads
from poskernel_core.plotting.palette import KIND_LOOKS
from poskernel_core.plotting.sparklines import compact_curves

ORDER: Final = "order-of-heads"
SINK: Final = "▖"
CURVES = "kernel by offset (log spacing), scaled to its largest value; larger on hover"


class Order(StrEnum):
    """Orders of the heads within each layer."""

    NUMBER = "by number"
    LARGEST = "largest first"
    SMALLEST = "smallest first"


def kind_thresholds() -> dict[str, Any]:
    """Draw the thresholds of the kinds; return them as parameters."""
    tokens = st.number_input(
        "Last tokens that count as local",
        **fitted_number("ltok", EtcParams.ends("local_tokens"), 10),
    )
    local = st.number_input(
        "Mass in them that makes a head local",
        step=0.05,
        **fitted_number("lshare", EtcParams.ends("local_share"), 0.5),
    )
    uniform = st.number_input(
        "Effective token count over visible keys that makes a head uniform",
        step=0.05,
        **fitted_number("ushare", EtcParams.ends("uniform_share"), 0.5),
    )
    return {"local_tokens": tokens, "local_share": local, "uniform_share": uniform}


def draw_grid(
    measure: Measure,
    result: Result,
    etc: Result,
    selection: Selection,
    visible_kinds: set[str],
    order: Order,
    kernels: Result | None = None,
    *,
    fade: bool = False,
) -> None:
    """Draw all heads by a measure; a click selects the head on every page.

    ``result`` has the measure, one number for each head. ``etc`` has the kinds at the query
    position; heads whose kind is not resolved are faint while results form, and with ``fade``.
    ``kernels`` has all heads' kernels there, if the cells show kernels instead of kinds.
    """
    kinds: list[list[str | None]] = etc.text_of("kind")
    known = known_heads(selection.run.model.name)
    values = result.values[measure.declared.value].astype(float)
    glyphs: list[tuple[str, str]] = [("∿", CURVES)]
    curves = None
    forming = etc.provenance.get("windows_asked", 0) < selection.run.windows
    resolved = stands(etc) if forming or fade else np.ones(values.shape, dtype=bool)
    columns = _kept_order(values, order, measure, selection, forming=forming)
    if kernels is None:
        glyphs = [(kind.glyph, name) for name, kind in KIND_LOOKS.items()]
        glyphs.append((KNOWN, "known function, named on hover"))
    else:
        glyphs += [("◥", "known function, named on hover")] if known else []
        rows = kernels.values["kernel"]
        curves = partial(compact_curves, rows, selection.query, selection.skip)
    left_out = first_keys(selection)
    sinks = np.zeros(values.shape, bool) if left_out is None else left_out[1]
    if sinks.any():
        keys = f"one of the first {counted(selection.skip, 'key')}, which kernels leave out"
        glyphs.append((SINK, f"{ATTENTION:g} or more of its attention on {keys}"))
    if not resolved.all():
        glyphs.append(("faded", "kind not resolved"))
    extras = Extras(
        marks=[
            [
                (KIND_LOOKS[kind].glyph if kind else "")
                + KNOWN * (head_name(i, j) in known)
                + SINK * bool(sinks[i, j])
                for j, kind in enumerate(row)
            ]
            for i, row in enumerate(kinds)
        ],
        dimmed=[
            [kind not in visible_kinds or not resolved[i][j] for j, kind in enumerate(row)]
            for i, row in enumerate(kinds)
        ],
        columns=columns,
        glyphs=glyphs,
        curves=curves,
    )
    own = (
        head_texts(result, measure.declared.value, measure.declared.title)
        if result.analysis != "etc"
        else None
    )
    numbers = [texts_of(etc, name) for name in ("etc", "half_mass_distance", "attention_distance")]

    def label(i: int, j: int) -> str:
        cell = head_name(i, j)
        first = f"{own[i][j]}; " if own else f"{cell}: "
        if kinds[i][j] is None:
            return f"{first}no key is visible at this query position"
        tokens, half, distance = (texts[i, j] for texts in numbers)
        function = f"; {KNOWN} known function: {known[cell]}" if cell in known else ""
        return (
            f"{first}ETC {counted(tokens, 'token')} at n = {selection.query}, {kinds[i][j]}, "
            f"half-mass distance {half}, total variation distance to the observed attention "
            f"{distance}{function}"
        )

    labels = [[label(i, j) for j in range(len(row))] for i, row in enumerate(kinds)]
    shade = measure.shade(result, values)
    draw_heads(shade, labels, measure.declared.unit, selection, "etc-grid", extras)


def _kept_order(
    values: np.ndarray, order: Order, measure: Measure, selection: Selection, *, forming: bool
) -> list[list[int]] | None:
    """Return the order of heads; while numbers form it stays that of the first picture."""
    key = (order, measure.declared.title, selection.run.key(), selection.query, selection.skip)
    kept = st.session_state.get(ORDER)
    if kept is not None and kept[0] == key:
        columns: list[list[int]] | None = kept[1]
        return columns
    columns = _columns(values, order)
    st.session_state[ORDER] = (key, columns) if forming else None
    return columns


def _columns(values: np.ndarray, order: Order) -> list[list[int]] | None:
    if order is Order.NUMBER:
        return None
    signed = values if order is Order.SMALLEST else -values
    return [[int(head) for head in np.argsort(row, kind="stable")] for row in signed]
