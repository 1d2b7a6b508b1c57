"""From heads to a circuit: who feeds whom, and how many heads are enough, over a set of pairs."""

from typing import Any, Final

import streamlit as st

from pages.interventions.between import choose_kind, choose_pairs, fields_of, left_out
from pages.interventions.many_texts import offer_first_heads
from pages.shared.cards.plain import plain, say
from pages.shared.cards.show import show, show_graph
from pages.shared.choices.fit import fitted_index, fitted_text, select_one
from pages.shared.jobs.pressed import fetch_when_asked
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.circuits.spec import (
    Edges,
    EdgesParams,
    Faithfulness,
    FaithfulnessParams,
)
from poskernel_core.analyses.circuits.views import no_difference
from poskernel_core.analyses.patching.spec import INTO_CHANGED
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted, value_text
from poskernel_core.export.notebook import DIRECTIONS, OUTSIDE

FIRST: Final = 8
"""Heads of a ranking that are named."""


def draw(selection: Selection) -> None:
    """Draw the choice of a set of pairs, the edges, and the curves of heads kept and removed."""
    kind, fields = choose_kind(selection, Edges)
    if not kind or not choose_pairs(kind, fields):
        return
    pairs = {**fields.params}
    st.subheader("Who feeds whom", anchor="edges")
    fields.choose("Direction", DIRECTIONS, "way", "direction")
    into_changed = fields.params["direction"] == INTO_CHANGED
    source, run = ("clean", "changed") if into_changed else ("changed", "clean")
    st.caption(f"The {run} prompts are run, with inputs of heads from the {source} ones.")
    _draw_edges(selection, fields.params)
    st.subheader("How many heads are enough?", anchor="enough")
    _draw_enough(selection, pairs)


def _draw_edges(selection: Selection, params: dict[str, Any]) -> None:
    """Draw edges between the heads that carry most, and those into the selected head exactly."""
    every = fetch_when_asked(
        Edges, selection.run, EdgesParams.model_validate(params), "compute-network"
    )
    if every is None or _says_why(every):
        return
    edges = every.only("edge", "estimate", "carried")
    show_graph("network", edges, "Who feeds whom: the largest edges, to first order")
    own = EdgesParams.model_validate(params | {"head": selection.cell})
    head = fetch_when_asked(Edges, selection.run, own, "compute-edges", "edges-into")
    if head is not None and not _says_why(head):
        into = head.only("edge", "estimate", "whole", "nonlinear").select(receiver=0)
        show("edges-into", into, f"What feeds {selection.cell}, exactly")
        st.caption(
            f"Rank correlation of exact edges with their estimates: {value_text(head, 'agreement')}"
        )


def _says_why(result: Result) -> bool:
    """Say why a result has no shares, if it has none; return whether that is so."""
    if why := no_difference(result):
        say(f"{why} Choose other pairs.")
    return bool(why)


def _draw_enough(selection: Selection, pairs: dict[str, Any]) -> None:
    """Draw what is recovered with the first heads of a ranking, at a button."""
    params = pairs | {"skip": selection.skip}
    fields = fields_of(selection, Faithfulness, **params)
    codes, order = fields.options("outside", OUTSIDE.values()), ""
    if not codes:
        usual = FaithfulnessParams.model_validate(params)
        fetch_when_asked(Faithfulness, selection.run, usual, "compute-enough")  # which says why
        return
    one, two = fields.places([1, 1])
    words = [word for word, code in OUTSIDE.items() if code in codes]
    outside = select_one("The other heads give", fitted_index("outside", words), one)
    if fields.stored is None:
        hint = "such as L2H3, L0H1; drawn beside the ranking by what heads carry"
        order = two.text_input(
            "An order of your own", help=hint, **fitted_text("keptorder", most=8000)
        )
        offer_first_heads(selection, "keptorder")
    own = f"; beside the ranking, {plain(order)} first" if order.strip() else ""
    st.caption(f"Heads are kept one after the other; all others give {outside}{own}.")
    params |= {"outside": OUTSIDE[outside], "order": order}
    asked = FaithfulnessParams.model_validate(params)
    result = fetch_when_asked(Faithfulness, selection.run, asked, "compute-enough")
    if result is None or _says_why(result):
        return
    used = counted(int(result.values["pairs"]), "pair")
    st.caption(f"{used}; {left_out(result)}.")
    show("enough", result, "What the first heads recover")
    halves = result.texts["ranking"]
    listed = " · ".join(", ".join(map(str, half[:FIRST])) for half in halves)
    st.caption(f"First heads of the ranking, by each half of the pairs: {listed}.")
