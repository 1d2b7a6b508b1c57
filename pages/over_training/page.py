"""Heads over training: any measure at every checkpoint, and when each head emerged."""

from dataclasses import replace

import streamlit as st

from pages.over_training.run import (
    Chosen,
    ask_other,
    choose_other,
    choose_run,
    offer_to_compute,
    say_what_is_alike,
)
from pages.over_training.sections import (
    draw_curves,
    draw_grids,
    draw_kernel,
    draw_kinds,
    draw_step,
    draw_two_shares,
)
from pages.shared.cards.plain import say_error
from pages.shared.choices.fit import fitted_index
from pages.shared.grid.measures import MEASURES, titles_for
from pages.shared.selection.head_choice import offer_head
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.head_measure import HeadMeasure
from poskernel_core.analyses.training.spec import (
    KernelOverTraining,
    KernelOverTrainingParams,
    OverTraining,
    OverTrainingParams,
)
from poskernel_core.common.errors import PosKernelError
from poskernel_core.common.result import Result

PLACE = Place(
    "Over training",
    "A measure of all heads at every checkpoint of a training run, and the step at which "
    "each head emerged.",
    needs="training",
    questions=("over-training", "kernel-over-training"),
)

FIRST = "induction score"
KINDS = "kind of kernel"
SINK = "attention sink"


def draw_measure(
    chosen: Chosen, measure: HeadMeasure, params: OverTrainingParams, theirs: Result | None
) -> None:
    """Draw a measure of all heads over training, its curves beside those of another run."""
    result = chosen.fetch(OverTraining, params)
    if result is None:
        return
    say_what_is_alike(result)
    if measure.scale != "labels":
        draw_curves(result, chosen, theirs)
    draw_step(result, measure, chosen.selection)
    draw_grids(result, measure, chosen.selection)


def draw_run(chosen: Chosen, measure: HeadMeasure, other: Chosen | None) -> None:
    """Draw all figures of a run, the curves beside those of the other one.

    Raises:
        PosKernelError: the selection does not fit the run.
    """
    query, skip, cell = chosen.selection.query, chosen.selection.skip, chosen.selection.cell
    params, kinds, scores, sinks = (
        OverTrainingParams(measure=title, query=query, skip=skip)
        for title in (measure.title, KINDS, FIRST, SINK)
    )
    kernel = KernelOverTrainingParams(head=cell, query=query, skip=skip)
    offer_to_compute(
        chosen,
        *((OverTraining, measure_params) for measure_params in (params, kinds, scores, sinks)),
        (KernelOverTraining, kernel),
    )
    theirs = None
    if other is not None and (theirs := ask_other(other, params)) is not None:
        chosen = replace(chosen, over=other.over)
    draw_measure(chosen, measure, params, theirs)
    draw_kinds(chosen, kinds)
    draw_kernel(chosen, kernel)
    draw_two_shares(chosen, scores, sinks)


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    chosen = choose_run(selection)
    if chosen is None:
        return
    offer_head(selection, "induction")
    left, right, last = st.columns(3, vertical_alignment="bottom")
    titles = titles_for(selection.located.geometry)
    measure = MEASURES[left.selectbox("Measure", **fitted_index("follow", titles, FIRST))].declared
    with right:
        chosen = replace(chosen, over=chosen.choose_axis())
    with last:
        other = choose_other(chosen)
    try:
        draw_run(chosen, measure, other)
    except PosKernelError as error:
        say_error(str(error))
