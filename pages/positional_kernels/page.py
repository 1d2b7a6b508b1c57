"""One head's positional kernel: curve, map, folded square, and the layer around it."""

from functools import partial
from typing import Any

import streamlit as st

from pages.positional_kernels import captions as words
from pages.positional_kernels.additivity import draw_additivity
from pages.positional_kernels.foreseen import draw_foreseen
from pages.positional_kernels.longer import draw_dilution, draw_longer
from pages.positional_kernels.side_by_side import draw_three
from pages.shared.cards.card import card
from pages.shared.cards.one_head import draw_kernel
from pages.shared.jobs import results
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from pages.shared.selection.source import choose_source
from pages.shared.tables.summary import summary
from poskernel_core.analyses.kernels.etc import EtcHeatMap, EtcParams
from poskernel_core.analyses.kernels.kernel import KernelParams, PositionalKernel
from poskernel_core.analyses.kernels.kernel_map import KernelMap, KernelMapParams
from poskernel_core.analyses.kernels.panels import PANELS, layer_panel, map_panel, square_panel
from poskernel_core.common.result import Result

PLACE = Place(
    "Kernel",
    "How much a head would attend to each earlier token if all tokens had the same content.",
    questions=(
        "kernel",
        "kernel-map",
        "dilution",
        "longer-contexts",
        "foreseen-attention",
        "additivity",
    ),
)


def draw_head(selection: Selection, kernel: Result, source: dict[str, Any]) -> None:
    """Draw the selected head's kernel over the offset, and its numbers."""
    sampled = source["source"] == "mean"
    etc = None
    with st.container():  # so that widgets below keep their places
        if sampled:
            etc = results.fetch(EtcHeatMap, selection.run, EtcParams(skip=selection.skip))
    asked = KernelParams(skip=selection.skip, query=selection.query, **source)
    request = results.plan(PositionalKernel, selection.run, asked)
    draw_kernel(kernel, selection, None if sampled else request.key)
    here = {"query": selection.query, "layer": selection.layer, "head": selection.head}
    summary(etc.select(**here) if etc is not None else selection.of(kernel), meanings=True)


def draw_squares(selection: Selection, kernel: Result) -> None:
    """Draw kernel and observed attention at the query, each folded to a square."""
    head, title = selection.of(kernel), f"{selection.cell} at n = {selection.query}"
    panel = partial(square_panel, head, selection.query)
    draw_three("square", f"{title}, folded to a square", _drawn(head), words.SQUARE, panel)


def draw_maps(selection: Selection, source: dict[str, Any]) -> None:
    """Draw kernel and observed attention over key and query positions."""
    asked = KernelMapParams(skip=selection.skip, head=selection.cell, **source)
    found = results.fetch(KernelMap, selection.run, asked)
    if found is not None:
        title, panel = f"{selection.cell} from every query position", partial(map_panel, found)
        draw_three("map", title, _drawn(found), words.MAP, panel)


def _drawn(result: Result) -> Result:
    return result.only(*(name for name in PANELS if name in result.values))


def draw_layer(selection: Selection, kernel: Result) -> None:
    """Draw the kernels of the selected layer's heads on common axes."""
    layer = kernel.select(layer=selection.layer)
    figure = partial(layer_panel, layer, selection.layer, selection.head, selection.query)
    card("layer", figure, layer, words.MULTIPLES, f"All heads of layer {selection.layer}")


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    source = choose_source(selection.run.model)
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
            draw_dilution(selection)
            draw_longer(selection)
            draw_foreseen(selection)
            draw_additivity(selection)
