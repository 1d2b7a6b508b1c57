"""The helix: extended positional embeddings at every layer."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import pandas as pd
import streamlit as st

from pages.shared.cards.rest import rest
from pages.shared.cards.show import show
from pages.shared.choices.choices import choose
from pages.shared.choices.fit import choose_one, fitted, fitted_index, fitted_number, fitted_span
from pages.shared.jobs import results
from pages.shared.selection.head_link import page_link
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from pages.shared.tables.tables import linked_table
from poskernel_core.analyses.helix.figures import OVERLAYS, first_name
from poskernel_core.analyses.helix.formulas import GROUP_SIZES, far_out
from poskernel_core.analyses.helix.spec import Helix, HelixParams
from poskernel_core.analyses.helix.views import SMOOTH_SHARE
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.result import Result
from poskernel_core.ledger.published import ANGLES_GPT2
from poskernel_core.models import catalog
from poskernel_core.models.fragments import part_of

PROMPTS: Final[dict[str, Any]] = {
    "one token repeated": "repeated",
    "windows of the corpus": "texts",
}


@dataclass(frozen=True)
class HelixView:
    """The settings of the figure of the helix."""

    layer: int
    span: tuple[int, int]
    group: int | None
    overlay: str


def choose_prompts(selection: Selection) -> HelixParams:
    """Draw the choice of prompts; return the parameters of the analysis."""
    left, right = st.columns([4, 1], vertical_alignment="bottom")
    if selection.located.geometry.scheme != "learned":
        link = page_link("rotary_spectrum", "Spectrum")
        rotary = selection.located.geometry.scheme == "rotary"
        left.info(
            f"This model has {selection.located.geometry.scheme} positions: nothing is added to "
            "the residual stream, so there is no helix as in the post. Shown is the mean stream "
            "over windows of text, in which the causal mask leaves a trace of position."
            + f" The rotation of queries and keys is on the page {link}."
            * rotary
        )
        prompts: Any = "texts"
    else:
        prompts = PROMPTS[choose_one("Stream measured on", PROMPTS, "prompts", place=left)]
    with right.popover("Settings", icon=":material/tune:", width="stretch"):
        return HelixParams(
            prompts=prompts,
            tokens=st.slider(
                "Repeated tokens, one per prompt",
                step=10,
                **fitted_number("rtok", HelixParams.ends("tokens"), 100, (10, 200)),
            ),
            leave_out=st.slider(
                "Leave out the first positions",
                help="later layers have huge values at the first positions",
                **fitted_number("out", HelixParams.ends("leave_out"), 0),
            ),
            subspace=st.slider(
                "k of the subspaces compared", **fitted_number("k", HelixParams.ends("subspace"), 3)
            ),
            far=st.slider(
                "Far from 0: beyond this many times the rms",
                step=0.5,
                **fitted_number("far", HelixParams.ends("far"), 1.0, (0.5, 4.0)),
            ),
        )


def choose_view(helix: Result) -> HelixView:
    """Draw the choice of layer, positions, averages and overlay."""
    layers = len(helix.values["far_share"])
    positions = helix.coordinates["pos"]
    first, last = int(positions[0]), int(positions[-1])
    one, two, three, four = st.columns([2, 2, 3, 3], vertical_alignment="bottom")
    layer = one.select_slider(
        "Stream before layer", **fitted("hl", [*range(layers)], min(2, layers - 1))
    )
    span = two.slider("Positions drawn", **fitted_span("span", first, last))
    groups = ["none", *(f"{size}" for size in GROUP_SIZES)]
    group = three.selectbox("Averages in groups of", **fitted_index("avg", groups))
    overlay = four.selectbox("Drawn with it", **fitted_index("overlay", OVERLAYS))
    chosen = None if group == "none" else int(group)
    return HelixView(layer, cast("tuple[int, int]", span), chosen, overlay)


MAX_NAMED = 4
SHOWS = {
    "gpt2-small-layer0": "GPT-2's own positions, a helix",
    "demo-gpt2": "positions on a smooth curve",
}


def say_what_to_see(helix: Result, selection: Selection) -> None:
    """Say whether this model's positions lie on a curve, and offer models with such positions."""
    if selection.located.geometry.scheme != "learned":
        return
    share = float(helix.values["explained_variance"][0, :3].sum())
    curve = share >= SMOOTH_SHARE
    gpt2 = part_of(selection.located.config) == "gpt2"
    several = selection.located.geometry.n_layers > 1
    st.markdown(
        f"**What to see.** Three components hold {100 * share:.0f} % of the variance of this "
        f"model's positional embeddings{'' if gpt2 else '; in GPT-2 small they hold 90 %'}. "
        + (
            "So the positions lie on a smooth curve: turn it"
            f"{', and follow it through the layers' if several else ''}."
            if curve
            else "That is too little for a helix: the positions need more directions."
        )
    )
    offered = {entry.name for entry in catalog.entries()} - {selection.run.model.name}
    buttons = st.container(horizontal=True)
    for name, what in SHOWS.items():
        if name in offered and not (curve and name == "demo-gpt2"):
            buttons.button(
                f"Show {name}: {what}",
                icon=":material/gesture:",
                key=f"show-{name}",
                on_click=choose,
                args=("model", name),
            )


def say_what_stands_out(helix: Result, view: HelixView) -> None:
    """Name positions that lie far from all others, and say how to leave them out."""
    positions = helix.coordinates["pos"]
    in_view = (positions >= view.span[0]) & (positions <= view.span[1])
    far = positions[in_view][far_out(helix.values["projection"][view.layer][in_view])]
    if 0 < len(far) <= MAX_NAMED:
        named = ", ".join(map(str, far.tolist()))
        who = f"Position {named} lies" if len(far) == 1 else f"Positions {named} lie"
        st.caption(
            f"{who} far from all others. Under «Settings» you can leave out the first positions."
        )


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
    say_what_stands_out(helix, view)
    names = ["projection", *filter(None, OVERLAYS[view.overlay]), "explained_variance"]
    if view.group is not None:
        names.append(f"group_{view.group}")
    show(
        "helix",
        helix.only(*dict.fromkeys(names)).select(layer=view.layer),
        span=view.span,
        group=view.group,
        overlay=view.overlay,
        first=helix.only("projection").select(layer=0),
    )


def draw_layers(helix: Result) -> None:
    """Draw the morph between layers, the explained variance, and the angles between layers.

    A model with one layer has only the explained variance.
    """
    left, right = st.columns([3, 2])
    several = len(helix.values["projection"]) > 1
    if several:
        morph = {"": partial(figure_of, helix)}
        show("morph", helix.only("projection"), figures=morph, column=left)
    show("variance", helix.only("explained_variance"), column=right if several else left)
    if several:
        draw_angles(helix)


def draw_angles(helix: Result) -> None:
    """Draw the canonical angles between all layers, next to the post's."""
    both = helix.only("angles_residual", "angles_position")
    figures = {name: partial(figure_of, both.only(name)) for name in both.values}

    table = partial(linked_table, _angle_table(helix), "angle-table")
    title = f"Canonical angles of the top-{helix.params['subspace']} subspaces"
    show("angles", both, title, figures=figures, below=table)


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
    if helix := results.fetch(Helix, selection.run, choose_prompts(selection)):
        say_few_tokens(helix)
        say_what_to_see(helix, selection)
        draw_curve(helix)
        with rest() as wanted:
            if wanted:
                draw_layers(helix)
                show("shape", helix.only(FAR, "token_spread"))
