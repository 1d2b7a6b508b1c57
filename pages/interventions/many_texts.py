"""The section that silences heads on many texts."""

from typing import Final

import streamlit as st

from pages.interventions.first_heads import offer_first_heads
from pages.shared.cards.metric import draw_metrics
from pages.shared.cards.plain import plain, say_error
from pages.shared.cards.show import show
from pages.shared.choices.fit import fitted_index, fitted_text
from pages.shared.jobs.pressed import fetch_when_asked
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.ablation.spec import AblateHeads, AblateHeadsParams
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.rounding import value_text
from poskernel_core.data.moves import parse_cells

BY: Final = {
    "their mean output": "mean",
    "zero": "zero",
    "another text's output": "resample",
    "attention by the kernel alone": "kernel",
}


def draw_many_texts(selection: Selection) -> None:
    """Draw what the model loses on many texts if typed heads are ablated, if asked for."""
    st.subheader("Silence heads on many texts", anchor="many-texts")
    one, two = st.columns([3, 2], vertical_alignment="bottom")
    heads = one.text_input(
        "Heads", help="such as L0H1, L2H3; all at once", **fitted_text("manyheads", selection.cell)
    )
    instead = two.selectbox("What takes their place", **fitted_index("manyby", BY))
    offer_first_heads(selection, "manyheads")
    if not heads.strip():
        st.info("Type one head or more.", icon=":material/touch_app:")
        return
    geometry = selection.located.geometry
    try:
        parse_cells(heads, geometry.n_layers, geometry.n_heads)
    except BadRequest as error:
        say_error(str(error))
        return
    st.caption(f"In place of {plain(heads)}: {instead}.")
    asked = {"heads": heads, "by": BY[instead], "skip": selection.skip}
    params = AblateHeadsParams.model_validate(asked)
    shown = "ablated", "ablated-induction"
    found = fetch_when_asked(AblateHeads, selection.run, params, "compute-ablated", *shown)
    if found is None:
        return
    told = "per token, above 0: the heads did good"
    copy = value_text(found.select(copy=2), "copy_loss_change")
    numbers = ("Loss change (nats)", value_text(found, "loss_change"), told)
    draw_metrics([numbers, ("Loss change, repeated random tokens (nats)", copy, told)])
    left, right = st.columns(2)
    with left:
        show("ablated", found.only("position_loss_change", "clean_position_loss"))
    with right:
        show("ablated-induction", found.only("induction_change", "induction"), "Induction")
