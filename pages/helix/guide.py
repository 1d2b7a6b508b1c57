"""What to see on the helix page, and which models show it."""

import streamlit as st

from pages.helix.controls import HelixView
from pages.shared.selection.links import write
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.helix.findings import SMOOTH_SHARE
from poskernel_core.analyses.helix.formulas import far_out
from poskernel_core.common.result import Result
from poskernel_core.models import catalog
from poskernel_core.models.fragments import part_of

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
                on_click=write,
                args=("model", name),
            )


def say_what_stands_out(helix: Result, view: HelixView) -> None:
    """Name positions that lie far from all others, and say how to leave them out."""
    positions = helix.coordinates["pos"]
    shown = (positions >= view.span[0]) & (positions <= view.span[1])
    far = positions[shown][far_out(helix.values["projection"][view.layer][shown])]
    if 0 < len(far) <= MAX_NAMED:
        named = ", ".join(map(str, far.tolist()))
        who = f"Position {named} lies" if len(far) == 1 else f"Positions {named} lie"
        st.caption(
            f"{who} far from all others. Under «Settings» you can leave out the first positions."
        )
