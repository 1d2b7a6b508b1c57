"""The controls of the helix page."""

from dataclasses import dataclass
from typing import Any, Final, cast

import streamlit as st

from pages.shared.selection.fit import choose_one, fitted, fitted_span, linked
from pages.shared.selection.head_link import page_link
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.helix.figures import OVERLAYS
from poskernel_core.analyses.helix.formulas import GROUP_SIZES
from poskernel_core.analyses.helix.spec import HelixParams
from poskernel_core.common.result import Result

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
                value=100,
                step=10,
                **linked("rtok", ends=(10, 200)),
            ),
            leave_out=st.slider(
                "Leave out the first positions",
                value=0,
                help="later layers have huge values at the first positions",
                **linked("out", ends=(0, 32)),
            ),
            subspace=st.slider("k of the subspaces compared", value=3, **linked("k", ends=(1, 10))),
            far=st.slider(
                "Far from 0: beyond this many times the rms",
                value=1.0,
                step=0.5,
                **linked("far", ends=(0.5, 4.0)),
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
    group = three.selectbox("Averages in groups of", **linked("avg", groups))
    overlay = four.selectbox("Drawn with it", **linked("overlay", OVERLAYS))
    chosen = None if group == "none" else int(group)
    return HelixView(layer, cast("tuple[int, int]", span), chosen, overlay)
