"""The helix: extended positional embeddings at every layer."""

from __future__ import annotations

from functools import partial
from typing import cast

import pandas as pd
import streamlit as st

from pages.parts import results
from pages.parts import words_positions as words
from pages.parts.cards import card, chart
from pages.parts.contents import contents_here
from pages.parts.figures import layer_lines, variance_bars
from pages.parts.figures.of_positions import (
    OVERLAYS,
    angles_figure,
    first_name,
    helix_figure,
    morph_figure,
)
from pages.parts.helix_controls import choose_prompts, choose_view
from pages.parts.helix_guide import say_what_to_see
from pages.parts.selection import Selection
from poskernel_core.analyses.base import Result
from poskernel_core.published import ANGLES_GPT2

selection = cast(Selection, st.session_state["selection"])
FAR = "far_share"


def draw_curve(helix: Result) -> None:
    """Draw the chosen layer's positions, alone or beside W_pos."""
    view = choose_view(helix)
    figure = partial(helix_figure, helix, view.layer, view.span, view.group, view.overlay)
    shown = OVERLAYS[view.overlay][0]
    names = ["projection", shown, "explained_variance"]
    if view.group is not None:
        names.append(f"group_{view.group}")
    card("helix", figure, helix.only(*dict.fromkeys(names)), words.HELIX)


def draw_layers(helix: Result) -> None:
    """Draw the morph between layers, and what the components hold."""
    left, right = st.columns([3, 2])
    with left:
        card("morph", partial(morph_figure, helix), helix.only("projection"), words.MORPH)
    with right:
        shares = helix.only("explained_variance")
        figure = partial(
            variance_bars, shares.values["explained_variance"], title="Explained variance"
        )
        card("variance", figure, shares, words.VARIANCE)


def draw_angles(helix: Result) -> None:
    """Draw the canonical angles between all layers, and the post's beside them."""
    both = helix.only("angles_residual", "angles_position")

    def draw() -> None:
        for column, name in zip(st.columns(2), both.values, strict=True):
            with column:
                chart(name, angles_figure(helix, name))
        st.dataframe(_angle_table(helix), hide_index=True, key="angle-table")

    title = f"Canonical angles of the top-{helix.params['subspace']} subspaces"
    card("angles", partial(angles_figure, helix, "angles_residual"), both, words.ANGLES, title,
         draw)  # fmt: skip


def _angle_table(helix: Result) -> pd.DataFrame:
    """Return the angles between W_pos and layer 2 (or the last), ours and the post's."""
    layer = min(2, len(helix.values[FAR]) - 1)
    learned = helix.provenance["position_scheme"] == "learned"
    readings = {
        f"residual stream, {first_name(helix)} to layer {layer}": "angles_residual",
        f"position space, {'W_pos' if learned else 'layer 0'} to layer {layer}": "angles_position",
    }
    rows = {reading: helix.values[name][0, layer] for reading, name in readings.items()}
    texts = {name: ", ".join(f"{angle:.1f}°" for angle in row) for name, row in rows.items()}
    texts["published for GPT-2 small, layer 2, k = 3"] = ", ".join(
        f"{angle:.0f}°" for angle in ANGLES_GPT2
    )
    return pd.DataFrame({"angles": texts.keys(), "all k, ascending": texts.values()})


def draw_shape(helix: Result) -> None:
    """Draw the sparsity of the entries, and the spread over prompts."""
    both = helix.only(FAR, "token_spread")
    spread = "the tokens repeated" if helix.params["prompts"] == "repeated" else "texts"
    lines = {
        f"far from 0 (beyond {helix.params['far']:g} × rms)": both.values[FAR],
        f"spread over {spread}": both.values["token_spread"],
    }
    figure = partial(layer_lines, lines, y_title="share (0 to 1) or relative size")
    card("shape", figure, both, words.SHAPE, f"Sparsity, and spread over {spread}")


st.title("Helix")
contents_here()
st.markdown(
    "How the residual stream holds position: in GPT-2 small the positional embeddings draw a helix."
)
params = choose_prompts(selection)
helix = results.fetch("helix", selection.run, **params)
if helix is not None:
    say_what_to_see(helix, selection)
    draw_curve(helix)
    draw_layers(helix)
    draw_angles(helix)
    draw_shape(helix)
