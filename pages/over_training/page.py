"""Heads over training: any measure at every checkpoint of a run, and when each head emerged."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from pages.over_training.run import Chosen, choose_run, say_what_is_alike
from pages.over_training.sections import (
    draw_curves,
    draw_grids,
    draw_kernel,
    draw_kinds,
    draw_step,
    draw_two_shares,
)
from pages.shared.contents import contents_here
from pages.shared.links import offer
from pages.shared.measures import MEASURES, Measure
from pages.shared.place import Place
from pages.shared.selection import Selection
from poskernel_core.analyses.training.spec import OverTraining, OverTrainingParams

PLACE = Place("Heads", "Over training", 10, topic="induction", idle=frozenset({"checkpoint"}))

FIRST = "induction score"
KINDS = "kind of kernel"


def choose_measure() -> Measure:
    """Draw the list of measures and return the one chosen."""
    titles = list(MEASURES)
    offer("follow", f"offered are {', '.join(titles)}")
    chosen = st.selectbox(
        "Measure", titles, index=titles.index(FIRST), key="follow", bind="query-params"
    )
    return MEASURES[chosen or FIRST]


def draw_measure(chosen: Chosen, measure: Measure) -> None:
    """Draw a measure of all heads over training."""
    selection = chosen.selection
    found = chosen.fetch(
        OverTraining,
        OverTrainingParams(measure=measure.title, query=selection.query, skip=selection.skip),
    )
    if found is None:
        return
    say_what_is_alike(found)
    if measure.declared.scale != "labels":
        draw_curves(found, chosen)
    draw_step(found, measure, selection)
    draw_grids(found, measure, selection)


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    st.title(PLACE.title)
    contents_here()
    st.markdown(
        "The same question, asked of every checkpoint of a training run: what each head did at "
        "each step, and from which step on it did what it does at the end."
    )
    chosen = choose_run(selection)
    if chosen is None:
        return
    row = st.container()
    with row:
        left, right = st.columns([3, 2], vertical_alignment="bottom")
        with left:
            measure = choose_measure()
        with right:
            chosen = replace(chosen, over=chosen.choose_axis())
    draw_measure(chosen, measure)
    draw_kinds(chosen, KINDS)
    draw_kernel(chosen)
    draw_two_shares(chosen, FIRST)
