"""One head's positional kernel: curve, map, folded square, and the layer around it."""

from functools import partial
from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from pages.positional_kernels import captions as words
from pages.positional_kernels.additivity import draw_additivity
from pages.positional_kernels.side_by_side import coloured, draw_three
from pages.shared.cards.card import card
from pages.shared.cards.one_head import draw_kernel
from pages.shared.jobs import results
from pages.shared.selection.place import Place, Screenshot
from pages.shared.selection.selection import Selection
from pages.shared.selection.source import choose_source
from pages.shared.tables.summary import summary
from poskernel_core.analyses import find
from poskernel_core.analyses.kernels.etc import EtcHeatMap, EtcParams
from poskernel_core.analyses.kernels.kernel import KernelParams, PositionalKernel
from poskernel_core.analyses.kernels.kernel_map import KernelMap, KernelMapParams
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.engine.requests import canonical_of
from poskernel_core.plotting.maps import folded_square, kernel_map
from poskernel_core.plotting.multiples import small_multiples

PLACE = Place(
    "Kernel",
    "How much a head would attend to each earlier token if all tokens had the same content.",
    picture=Screenshot("log=offset", "map"),
    questions=("kernel", "kernel-map", "additivity"),
)


def draw_head(selection: Selection, kernel: Result, source: dict[str, Any]) -> None:
    """Draw the selected head's kernel over the offset, and its numbers."""
    sampled = source["source"] == "mean"
    etc = None
    with st.container():  # so that widgets below keep their places
        if sampled:
            etc = results.fetch(EtcHeatMap, selection.run, EtcParams(skip=selection.skip))
    asked = KernelParams(skip=selection.skip, query=selection.query, **source)
    request = canonical_of(find(PositionalKernel.name), selection.run, asked)
    draw_kernel(kernel, selection, None if sampled else request.key)
    here = {"query": selection.query, "layer": selection.layer, "head": selection.head}
    summary(etc.select(**here) if etc is not None else selection.of(kernel), meanings=True)


def draw_squares(selection: Selection, kernel: Result) -> None:
    """Draw kernel and observed attention at the query, each folded to a square."""
    head = selection.of(kernel)

    def squares(found: dict[str, np.ndarray]) -> list[go.Figure]:
        rows = {name: row[: selection.query + 1].copy() for name, row in found.items()}
        for row in rows.values():
            row[: selection.skip] = np.nan
        return [
            folded_square(row, title=name, colours=colours) for name, row, colours in coloured(rows)
        ]

    title = f"{selection.cell} at n = {selection.query}, folded to a square"
    draw_three("square", title, head, words.SQUARE, squares)


def draw_maps(selection: Selection, source: dict[str, Any]) -> None:
    """Draw kernel and observed attention over key and query positions."""
    asked = KernelMapParams(skip=selection.skip, head=selection.cell, **source)
    found = results.fetch(KernelMap, selection.run, asked)
    if found is not None:
        queries = found.coordinates["query"].astype(np.int64)
        seen = np.isfinite(found.values["kernel"]).any(axis=1)
        width = int(queries[-1]) + 1

        def maps(values: dict[str, np.ndarray]) -> list[go.Figure]:
            shown = {name: each[seen][:, :width] for name, each in values.items()}
            return [
                kernel_map(each, queries[seen], title=name, colours=colours)
                for name, each, colours in coloured(shown)
            ]

        draw_three("map", f"{selection.cell} from every query position", found, words.MAP, maps)


def draw_layer(selection: Selection, kernel: Result) -> None:
    """Draw the kernels of the selected layer's heads on common axes."""
    layer = kernel.select(layer=selection.layer)
    rows = layer.values["kernel"][:, selection.skip : selection.query + 1][:, ::-1]
    labels = [head_name(selection.layer, head) for head in range(len(rows))]
    figure = partial(
        small_multiples, np.ascontiguousarray(rows), labels, selection.head, log_y=True
    )
    card("layer", figure, layer, words.MULTIPLES, f"All heads of layer {selection.layer}")


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    source = choose_source()
    if source is not None:
        asked = KernelParams(skip=selection.skip, query=selection.query, **source)
        kernel = results.fetch(PositionalKernel, selection.run, asked)
        if kernel is not None:
            draw_head(selection, kernel, source)
            if source["source"] == "token":
                st.info(
                    "A fixed token is placed at one query position only: for the map over all "
                    "positions, choose another source of queries."
                )
            else:
                draw_maps(selection, source)
            draw_squares(selection, kernel)
            draw_layer(selection, kernel)
            draw_additivity(selection)
