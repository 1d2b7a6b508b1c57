"""The helix: extended positional embeddings at every layer."""

from functools import partial

import pandas as pd
import streamlit as st

from pages.helix import captions as words
from pages.helix.controls import choose_prompts, choose_view
from pages.helix.guide import say_what_stands_out, say_what_to_see
from pages.shared.cards.card import card
from pages.shared.cards.figure import charts
from pages.shared.jobs import results
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.helix.figures import (
    OVERLAYS,
    angles_figure,
    first_name,
    helix_figure,
    morph_figure,
    shape_figure,
    variance_figure,
)
from poskernel_core.analyses.helix.spec import Helix
from poskernel_core.common.result import Result
from poskernel_core.ledger.published import ANGLES_GPT2

PLACE = Place(
    "Helix",
    "How the residual stream represents position: in GPT-2 small the positional "
    "embeddings form a helix.",
    needs="learned",
    questions=("helix",),
)

FAR = "far_share"


def draw_curve(helix: Result) -> None:
    """Draw the chosen layer's positions, alone or with W_pos."""
    view = choose_view(helix)
    figure = partial(helix_figure, helix, view.layer, view.span, view.group, view.overlay)
    shown = OVERLAYS[view.overlay][0]
    say_what_stands_out(helix, view)
    names = ["projection", shown, "explained_variance"]
    if view.group is not None:
        names.append(f"group_{view.group}")
    card("helix", figure, helix.only(*dict.fromkeys(names)), words.HELIX)


def draw_layers(helix: Result) -> None:
    """Draw the morph between layers, the explained variance, and the angles between layers.

    A model with one layer has only the explained variance.
    """
    left, right = st.columns([3, 2])
    several = len(helix.values["projection"]) > 1
    if several:
        with left:
            card("morph", partial(morph_figure, helix), helix.only("projection"), words.MORPH)
    with right if several else left:
        shares = helix.only("explained_variance")
        card("variance", partial(variance_figure, shares), shares, words.VARIANCE)
    if several:
        draw_angles(helix)


def draw_angles(helix: Result) -> None:
    """Draw the canonical angles between all layers, next to the post's."""
    both = helix.only("angles_residual", "angles_position")

    def draw() -> None:
        charts({name: partial(angles_figure, helix, name) for name in both.values})
        st.dataframe(_angle_table(helix), hide_index=True, key="angle-table")

    title = f"Canonical angles of the top-{helix.params['subspace']} subspaces"
    figure = partial(angles_figure, helix, "angles_residual")
    card("angles", figure, both, words.ANGLES, title, draw)


def _angle_table(helix: Result) -> pd.DataFrame:
    """Return the angles from layer 0 to layer 2 (or the last), and the post's if comparable."""
    layer = min(2, len(helix.values[FAR]) - 1)
    learned = helix.provenance["position_scheme"] == "learned"
    readings = {
        f"residual stream, {first_name(helix)} to layer {layer}": "angles_residual",
        f"position space, {'W_pos' if learned else 'layer 0'} to layer {layer}": "angles_position",
    }
    rows = {reading: helix.values[name][0, layer] for reading, name in readings.items()}
    texts = {name: ", ".join(f"{angle:.1f}°" for angle in row) for name, row in rows.items()}
    if learned:
        published = ", ".join(f"{angle:.0f}°" for angle in ANGLES_GPT2)
        texts["published for GPT-2 small, layer 2, k = 3"] = published
    return pd.DataFrame({"angles": texts.keys(), "all k, ascending": texts.values()})


def draw_shape(helix: Result) -> None:
    """Draw the sparsity of the entries and the spread over prompts."""
    both = helix.only(FAR, "token_spread")
    card("shape", partial(shape_figure, both), both, words.SHAPE, "Sparsity and spread")


def say_few_tokens(helix: Result) -> None:
    """Say if the model has fewer tokens than were to be repeated."""
    run = helix.provenance
    if helix.params["prompts"] == "repeated" and run["windows"] < run["windows_asked"]:
        st.caption(
            f"The model has fewer tokens than the {run['windows_asked']} asked for: "
            f"{run['windows']} are repeated, in groups of equal size."
        )


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    helix = results.fetch(Helix, selection.run, choose_prompts(selection))
    if helix is not None:
        say_few_tokens(helix)
        say_what_to_see(helix, selection)
        draw_curve(helix)
        draw_layers(helix)
        draw_shape(helix)
