"""The cards of the page on contextual heads."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np
import pandas as pd
import streamlit as st

from pages.contextual import captions as words
from pages.shared import results
from pages.shared.cards import card, chart
from pages.shared.contextual_controls import choose_texts
from pages.shared.head_link import head_link
from pages.shared.selection import Selection, select_cell
from pages.shared.tables import choice_table, rounded_table
from pages.shared.word_lists import word_lists
from poskernel_core.analyses.contextual_heads.denominators import (
    Denominators,
    DenominatorsParams,
    TokenWeights,
    TokenWeightsParams,
)
from poskernel_core.analyses.kernels.distances import KernelDistances, KernelDistancesParams
from poskernel_core.common.heads import cell_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted, value_text
from poskernel_core.figures.contextual import (
    copies_figure,
    denominators_figure,
    distances_figure,
    spread_figure,
    weights_figure,
)
from poskernel_core.figures.layout import without_title

__all__ = [
    "draw_copies",
    "draw_denominators",
    "draw_evidence",
    "draw_layer",
    "draw_weights",
    "heads_table",
]

URL: Final = "query-params"
MOST_LINES = 16
WIDE = 100  # largest over smallest denominator, from which their axis is logarithmic
COLUMNS = {
    "etc": ("ETC (tokens)", "effective token count of the destination token's mean kernel"),
    "spread": ("spread", "standard deviation of the denominator over texts, over its mean"),
    "predicted_spread": ("independent", "the spread if tokens of a text were independent"),
    "local_mass": ("last 10 tokens", "share of the kernel's mass there"),
    "near": ("near copies", "attention to copies up to 10 tokens back, above that to others"),
    "far": ("far copies", "the same for copies further back"),
}


def heads_table(heads: Result, selected: str) -> None:
    """Draw every head as a row, contextual heads first, steadiest first."""
    places = list(np.ndindex(*heads.values["group"].shape))
    table = pd.DataFrame(
        {
            "head": [cell_name(*place) for place in places],
            "group": np.array(heads.text_of("group")).ravel(),
        }
    )
    for name, (label, _) in COLUMNS.items():
        table[label] = heads.values[name].ravel()
    order = np.lexsort((table["spread"], heads.values["group"].ravel() != words.CONTEXTUAL))
    columns = {
        label: st.column_config.NumberColumn(help=meaning) for label, meaning in COLUMNS.values()
    }
    shown = rounded_table(table.iloc[order], heads, {COLUMNS[name][0]: name for name in COLUMNS})
    choice_table(shown, "contextual-table", select_cell, columns)
    heads_listed = counted(len(table), "head")
    st.caption(f"{heads_listed}, contextual ones first, steadiest first. Selected: {selected}.")


def draw_evidence(head: Result, limits: dict[str, float]) -> None:
    """Draw what puts a head in its group: each number next to its threshold."""
    texts, query = counted(head.provenance["first_windows"], "text"), head.params["query"]
    rows = (
        ("Attention to near copies", "near", f"duplicate token from {limits['copies']:g}"),
        ("Attention to far copies", "far", f"duplicate token from {limits['copies']:g}"),
        ("Mass in the last 10 tokens", "local_mass", f"detokenization from {limits['local']:g}"),
        (
            f"ETC at n = {query} (tokens)",
            "etc",
            f"contextual from {limits['broad']:.0f}",
        ),
        (f"Relative spread over {texts}", "spread", f"contextual up to {limits['steady']:g}"),
        ("Spread expected of independent tokens", "predicted_spread", "no threshold"),
    )
    lines = ["| Evidence | Value | Threshold |", "|:--|:--|:--|"]
    lines += [f"| {label} | {value_text(head, name)} | {limit} |" for label, name, limit in rows]
    st.markdown("\n".join(lines))


def draw_denominators(selection: Selection, token: str, contexts: int) -> None:
    """Draw the selected head's denominators along positions, and their spread.

    Of the ``contexts`` chosen only as many are read as can be distinguished as lines.
    """
    texts = choose_texts()
    found = results.fetch(
        Denominators,
        selection.run,
        DenominatorsParams(
            cell=selection.cell, token=token, skip=selection.skip, **texts,
            first_windows=min(MOST_LINES, contexts),
        ),
    )  # fmt: skip
    if found is None:
        return
    left, right = st.columns(2)
    with left:
        lines = found.only(
            *(n for n in ("denominator", "own_denominator", "mean") if n in found.values)
        )
        low, high = (float(pick(found.values["denominator"])) for pick in (np.min, np.max))
        figure = partial(denominators_figure, found, log_y=high > WIDE * max(low, 1e-300))
        card("denominators", figure, lines, words.DENOMINATORS, f"Denominators of {selection.cell}")
    with right:
        spread = found.only("spread", "predicted_spread", "etc")
        read = counted(len(found.values["denominator"]), "text")
        card(
            "spread",
            partial(spread_figure, found),
            spread,
            words.SPREAD,
            f"Observed and expected spread over {read}",
        )


def draw_copies(heads: Result, selection: Selection) -> None:
    """Draw the selected head's attention to copies."""
    place = selection.layer, selection.head
    shown = heads.only("copy_attention", "baseline").select(layer=place[0], head=place[1])
    card(
        "copies",
        partial(copies_figure, heads, *place),
        shown,
        words.COPIES,
        "Attention to earlier copies",
    )


def draw_weights(selection: Selection, token: str) -> None:
    """Draw which tokens the selected head weights up and down."""
    found = results.fetch(
        TokenWeights,
        selection.run,
        TokenWeightsParams(
            cell=selection.cell, query=selection.query, token=token, skip=selection.skip
        ),
    )
    if found is None:
        return

    def draw() -> None:
        word_lists(found, ("up", "down"), "nats", "token-weights")
        chart("weights", without_title(weights_figure(found)))

    card(
        "weights",
        partial(weights_figure, found),
        found,
        words.WEIGHTS,
        f"Tokens as {selection.cell} weights them",
        draw,
    )


def draw_layer(selection: Selection) -> None:
    """Draw the distances between the kernels of a layer's heads, and their groups."""
    st.subheader(f"Kernels of layer {selection.layer}", anchor="layer-kernels")
    left, right = st.columns([3, 2])
    alike = right.slider("Largest distance within a group", 0.0, 1.0, 0.1, 0.01, key="alike",
                         bind=URL)  # fmt: skip
    apart = right.slider("Distance that rules a pair out", 0.0, 1.0, 0.5, 0.01, key="apart",
                         bind=URL)  # fmt: skip
    query = max(selection.query, selection.skip)
    found = results.fetch(
        KernelDistances,
        selection.run,
        KernelDistancesParams(query=query, skip=selection.skip, alike=alike, apart=apart),
    )
    if found is None:
        return
    layer = found.select(layer=selection.layer)
    right.markdown(_pairs(layer, selection.layer, apart))
    with left:
        card(
            "distances",
            partial(distances_figure, found, selection.layer),
            layer,
            words.DISTANCES,
            "Distances between kernels",
        )


def _pairs(layer: Result, number: int, apart: float) -> str:
    """Return the groups and the ruled-out pairs in words."""
    groups, distance = layer.values["group"], layer.values["distance"]
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    named = [
        ", ".join(head_link(cell_name(number, int(h))) for h in each)
        for each in members
        if len(each) > 1
    ]
    out = [
        f"{head_link(cell_name(number, int(i)))}–{head_link(cell_name(number, int(j)))}"
        for i, j in np.argwhere(np.triu(distance >= apart, 1))
    ]
    pairs = len(distance) * (len(distance) - 1) // 2
    return (
        f"**Candidates for superposition:** {'; '.join(named) or 'none'}.  \n"
        f"**Ruled out:** {len(out)} of {counted(pairs, 'pair')}"
        f"{': ' + ', '.join(out) if out else ''}."
    )
