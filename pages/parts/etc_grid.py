"""The clickable grid of all heads, coloured by log ETC, and its controls."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

import numpy as np
import streamlit as st

from pages.parts.figures.palette import KINDS, log_position, scale_hex
from pages.parts.grid import head_grid, log_legend
from pages.parts.head import value_text
from pages.parts.selection import Selection, select_cell
from poskernel_core.analyses.base import Result
from poskernel_core.config import cell_name
from poskernel_core.known import known_heads

__all__ = ["Order", "draw_grid", "kind_thresholds"]

T = TypeVar("T")
KEY = "etc-grid"
KNOWN = "★"


class Order(StrEnum):
    """Orders of the heads within each layer."""

    NUMBER = "by number"
    ETC = "by ETC, largest first"
    LOCAL = "by ETC, smallest first"
    FIDELITY = "by fidelity, best first"


def kind_thresholds() -> dict[str, float]:
    """Draw the thresholds of the kinds and return them as parameters of the analysis."""
    tokens = st.slider(
        "Last tokens that count as local", 1, 64, 10, key="ltok", bind="query-params"
    )
    local = st.slider(
        "Mass in them that makes a head local", 0.0, 1.0, 0.5, 0.05, key="lshare",
        bind="query-params",
    )  # fmt: skip
    uniform = st.slider(
        "ETC over visible keys that makes a head uniform", 0.0, 1.0, 0.5, 0.05, key="ushare",
        bind="query-params",
    )  # fmt: skip
    return {"local_tokens": tokens, "local_share": local, "uniform_share": uniform}


def draw_grid(etc: Result, selection: Selection, shown: set[str], order: Order) -> None:
    """Draw all heads at one query position; a click selects the head on every page."""
    values = etc.values["etc"]
    visible = max(float(np.nanmax(etc.values["visible"])), 2.0)
    kinds: list[list[str | None]] = etc.text_of("kind")
    known = known_heads(selection.run.model.name)
    head_grid(
        scale_hex(log_position(np.nan_to_num(values, nan=1.0), 1.0, visible)),
        _each(kinds, lambda i, j: _label(etc, i, j, kinds[i][j], known)),
        _each(kinds, lambda i, j: _mark(kinds[i][j], known.get(cell_name(i, j)))),
        _each(kinds, lambda i, j: kinds[i][j] not in shown),
        (selection.layer, selection.head),
        _columns(etc, order),
        key=KEY,
        on_select=_selected,
        legend=log_legend(1.0, visible),
        legend_title="effective tokens (log scale)",
        glyphs=[*((kind.glyph, name) for name, kind in KINDS.items()), (KNOWN, "known function")],
    )


def _selected() -> None:
    cell = st.session_state[KEY].cell
    if cell:
        select_cell(cell)


def _each(kinds: list[list[str | None]], make: Callable[[int, int], T]) -> list[list[T]]:
    return [[make(i, j) for j in range(len(row))] for i, row in enumerate(kinds)]


def _mark(kind: str | None, function: str | None) -> str:
    return (KINDS[kind].glyph if kind else "") + (KNOWN if function else "")


def _label(etc: Result, layer: int, head: int, kind: str | None, known: dict[str, str]) -> str:
    cell = cell_name(layer, head)
    if kind is None:
        return f"{cell}: no key is visible at this query position"
    one = etc.select(layer=layer, head=head)
    text = (
        f"{cell}: ETC {value_text(one, 'etc')} tokens, {kind}, half of the mass within "
        f"offset {value_text(one, 'half_mass_distance')}, fidelity {value_text(one, 'fidelity')}"
    )
    return text + (f"; known as: {known[cell]}" if cell in known else "")


def _columns(etc: Result, order: Order) -> list[list[int]] | None:
    if order is Order.NUMBER:
        return None
    signed = {
        Order.ETC: -etc.values["etc"],
        Order.LOCAL: etc.values["etc"],
        Order.FIDELITY: etc.values["fidelity"],
    }[order]
    return [[int(head) for head in np.argsort(row, kind="stable")] for row in signed]
