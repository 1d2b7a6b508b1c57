"""One head's positional kernel: curve, map, folded square, and the layer around it."""

from __future__ import annotations

from typing import cast

import numpy as np
import streamlit as st

from pages.parts import results, words
from pages.parts.cards import card
from pages.parts.figures import folded_square, kernel_map, small_multiples
from pages.parts.figures.of_result import head_curve
from pages.parts.head import metrics
from pages.parts.selection import Selection
from pages.parts.source import choose_source
from poskernel_core.analyses.base import Result
from poskernel_core.config import cell_name

selection = cast(Selection, st.session_state["selection"])


def draw_curve(kernel: Result) -> None:
    """Draw the selected head's kernel over the offset."""
    head = kernel.select(layer=selection.layer, head=selection.head)
    st.subheader(f"{selection.cell} at query position {selection.query}", anchor="head")
    metrics(head)
    axes = st.pills(
        "Logarithmic axes", ["offset", "attention"], selection_mode="multi", key="log",
        bind="query-params", default=[],
    )  # fmt: skip
    figure = head_curve(head, selection.query, log_x="offset" in axes, log_y="attention" in axes)
    card("curve", figure, head, words.CURVE, "Kernel over the offset")


def draw_squares(kernel: Result) -> None:
    """Draw kernel and observed attention of the one row, each folded to a square."""
    head = kernel.select(layer=selection.layer, head=selection.head)
    for column, (name, title) in zip(
        st.columns(2), (("kernel", "Kernel"), ("observed", "Observed attention")), strict=True
    ):
        if name in head.values:
            row = head.values[name][: selection.query + 1].copy()
            row[: selection.skip] = np.nan
            figure = folded_square(row, title=f"{title} of {selection.cell}")
            with column:
                card(f"square-{name}", figure, head, words.SQUARE, f"{title}, folded")


def draw_layer(kernel: Result) -> None:
    """Draw the kernels of the selected layer's heads on common axes."""
    layer = kernel.select(layer=selection.layer)
    rows = layer.values["kernel"][:, selection.skip : selection.query + 1][:, ::-1]
    labels = [cell_name(selection.layer, head) for head in range(len(rows))]
    figure = small_multiples(np.ascontiguousarray(rows), labels, selection.head, log_y=True)
    card("layer", figure, layer, words.MULTIPLES, f"All heads of layer {selection.layer}")


def draw_maps(source: dict[str, str | None]) -> None:
    """Draw key position against query position: the kernel, and the attention observed."""
    found = results.fetch(
        "kernel-map", selection.run, skip=selection.skip, cell=selection.cell, **source
    )
    if found is None:
        return
    queries = found.coordinates["query"].astype(np.int64)
    seen = np.isfinite(found.values["kernel"]).any(axis=1)
    width = int(queries[-1]) + 1
    for column, (name, title) in zip(
        st.columns(2), (("kernel", "Kernel"), ("observed", "Observed attention")), strict=True
    ):
        values = found.values[name][seen][:, :width]
        figure = kernel_map(values, queries[seen], title=f"{title} of {selection.cell}")
        with column:
            card(f"map-{name}", figure, found, words.MAP, f"{title}, all query positions")


st.title("Positional kernels")
source = choose_source(selection.run)
if source is not None:
    kernel = results.fetch(
        "kernel", selection.run, skip=selection.skip, query=selection.query, **source
    )
    if kernel is not None:
        draw_curve(kernel)
        if source["source"] == "token":
            st.info(
                "A fixed token is placed at one query position, so there is no map over all of "
                "them: choose another source of queries to see it."
            )
        else:
            draw_maps(source)
        draw_squares(kernel)
        draw_layer(kernel)
