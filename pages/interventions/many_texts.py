"""The section that silences heads on many texts."""

from typing import Final

import numpy as np
import streamlit as st

from pages.shared.cards.metric import draw_metrics
from pages.shared.cards.plain import plain, say_error
from pages.shared.cards.show import show
from pages.shared.choices.choices import choose
from pages.shared.choices.fit import fitted_index, fitted_text
from pages.shared.grid.measures import MEASURES, titles_for
from pages.shared.jobs.pressed import fetch_when_asked
from pages.shared.look.fold import fold
from pages.shared.selection.head_choice import ranked
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.ablation.spec import AblateHeads, AblateHeadsParams
from poskernel_core.analyses.claims import below_the_line
from poskernel_core.analyses.measures import one_a_head
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import value_text
from poskernel_core.data.moves import parse_cells

BY: Final = {
    "their mean output": "mean",
    "zero": "zero",
    "another text's output": "resample",
    "attention by the kernel alone": "kernel",
}

FIRST: Final = "induction score"
ENDS: Final = ("largest", "smallest")
MOST: Final = 100


def offer_first_heads(selection: Selection, key: str) -> None:
    """Draw a menu that fills the field ``key`` with heads, chosen by a measure."""
    if not (menu := fold("Choose heads by a measure", "first-heads")):
        return
    with menu:
        fitting = titles_for(selection.located.geometry)
        chosen = st.selectbox("Measure", fitting, fitting.index(FIRST), key="first-measure")
        measure = MEASURES[chosen or FIRST]
        params = measure.params(selection)
        result = fetch_when_asked(measure.question, selection.run, params, "compute-first-heads")
        if result is None:
            return
        one = one_a_head(measure.declared, result, query=selection.query)
        cells, others = _choose(one, measure.declared.value)
        st.caption(", ".join(cells) + (f" ({others})" if others else "") or "No head.")
        st.button(
            "Take these heads",
            disabled=not cells,
            on_click=choose,
            args=(key, ", ".join(cells)),
            key="take-heads",
        )


def _choose(one: Result, name: str) -> tuple[list[str], str]:
    """Draw the choice of a kind, or of an end and a number.

    Return the heads, the first first, and how many others can't be told from the last.
    """
    values = one.values[name].astype(float)
    if labels := one.labels.get(name):
        kind = st.selectbox("Kind", labels, key="first-kind")
        return [head_name(*map(int, at)) for at in np.argwhere(values == labels.index(kind))], ""
    end = st.segmented_control("Which", ENDS, default=ENDS[0], required=True, key="first-end")
    count = st.number_input("How many heads", 1, MOST, 5, key="first-count")
    heads = ranked(values if end == ENDS[0] else -values)
    others = below_the_line(one.estimate_of(name), heads, count)
    return [head_name(*at) for at in heads[:count]], others


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
    options = {"heads": heads, "by": BY[instead], "skip": selection.skip}
    params = AblateHeadsParams.model_validate(options)
    cards = "ablated", "ablated-induction"
    result = fetch_when_asked(AblateHeads, selection.run, params, "compute-ablated", *cards)
    if result is None:
        return
    meaning = "per token, above 0: the heads did good"
    copy = value_text(result.select(copy=2), "copy_loss_change")
    numbers = ("Loss change (nats)", value_text(result, "loss_change"), meaning)
    draw_metrics([numbers, ("Loss change, repeated random tokens (nats)", copy, meaning)])
    left, right = st.columns(2)
    show("ablated", result.only("position_loss_change", "clean_position_loss"), column=left)
    induction = result.only("induction_change", "induction")
    show("ablated-induction", induction, "Induction", column=right)
