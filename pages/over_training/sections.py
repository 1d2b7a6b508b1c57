"""The figures of the page on heads over training."""

from functools import partial

import numpy as np
import streamlit as st
from pandas.io.formats.style import Styler

from pages.over_training.run import Chosen
from pages.shared.cards.card import card
from pages.shared.cards.explained import explained
from pages.shared.cards.figure import dark
from pages.shared.cards.plain import capital
from pages.shared.cards.show import show
from pages.shared.choices.fit import fitted, fitted_list
from pages.shared.grid.measure_grid import draw_heads, head_texts
from pages.shared.look.fold import fold
from pages.shared.selection.head_link import page_address
from pages.shared.selection.selection import Selection, select_head
from pages.shared.tables.tables import choice_table, errors_line, heads_frame, rounded_table
from poskernel_core.analyses.head_measure import HeadMeasure
from poskernel_core.analyses.training.figures import induction_and_sink, most_changed
from poskernel_core.analyses.training.spec import (
    KernelOverTraining,
    KernelOverTrainingParams,
    OverTraining,
    OverTrainingParams,
)
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.plotting.shades import Shade, shaded

TWO_SHARES = explained(
    "over-training",
    "The induction score on random tokens repeated once, and the mean attention to the first token "
    "of the windows (the measure «attention sink», nothing skipped), with their standard errors.",
    "measure",
)


FEW = 3


def draw_curves(found: Result, chosen: Chosen, theirs: Result | None) -> None:
    """Draw the measure of chosen heads against steps or tokens, and their emergence.

    Those of a second run stand beside them, on the same axes.
    """
    selection = chosen.selection
    layers, heads = found.values["change"].shape
    names = [head_name(layer, head) for layer in range(layers) for head in range(heads)]
    default = list(dict.fromkeys([selection.cell, *most_changed(found, FEW)]))
    shown = st.multiselect(
        "Heads",
        help="by default the selected head and those that changed the most",
        **fitted_list("tracked", names, default),
    )
    if not shown:
        st.info("Choose at least one head.", icon=":material/info:")
        return
    measure = found.params["measure"]
    title = f"{capital(measure)} over training"
    if theirs is None:
        show("curves", found, title, heads=tuple(shown), over=chosen.over)
    else:
        both = {"curves": (found, theirs), "curves-beside": (theirs, found)}
        for column, (name, (one, other)) in zip(st.columns(2), both.items(), strict=True):
            with column:
                named = f"{title}: {one.model_title}"
                show(name, one, named, heads=tuple(shown), over=chosen.over, beside=other)
    if table := fold("Emergence of all heads as a table", "emergence"):
        with table:
            rows, model = emergence_table(found), selection.run.model.name
            end = {"at the end": st.column_config.NumberColumn(format="%.3g")}
            leads = [page_address("head", cell, model=model) for cell in rows.data["head"]]
            choice_table(rows, "emergence-table", select_head, end, addresses=leads)
            errors_line(found)


def emergence_table(found: Result) -> Styler:
    """Return a row for every head, early emergence first; measures that fell come last."""
    last = found.select(step=int(found.coordinates["step"][-1]))
    columns = {
        "at the end": last.values["measure"],
        "change": found.values["change"],
        "emergence (step)": np.round(found.values["emergence"]),
        "not before": found.values["emergence_earliest"],
        "not after": found.values["emergence_latest"],
    }
    table = heads_frame(columns).sort_values("emergence (step)", kind="stable")
    steps = ["emergence (step)", "not before", "not after"]
    fell = table["emergence (step)"].isna() & table["change"].notna() & (table["at the end"] != 0)
    return (
        rounded_table(table, found, {"change": "change"})
        .format("{:,.0f}", subset=steps, na_rep="none")
        .format(na_rep="fell", subset=(fell, steps[:1]))
    )


def draw_step(found: Result, measure: HeadMeasure, selection: Selection) -> None:
    """Draw the grid of all heads at a chosen step, on one scale for all steps."""
    steps = found.coordinates["step"].tolist()
    step = st.select_slider("Step", **fitted("step", steps, steps[-1]))
    here = found.only("measure").select(step=int(step))

    def draw() -> None:
        shade = _shade_at(found, measure, steps.index(step))
        texts = head_texts(here, "measure", measure.title)
        draw_heads(shade, texts, measure.unit, selection, "training-grid")

    show("at-step", here, f"{capital(measure.title)} at step {step:,}", draw)


def _shade_at(found: Result, measure: HeadMeasure, place: int) -> Shade:
    """Return the colours of one step on the scale of all."""
    values = found.values["measure"].astype(float)
    steps, layers, heads = values.shape
    labels = found.labels.get("measure", ())
    values = values.reshape(steps * layers, heads)
    whole = shaded(values, measure.scale, measure.floor, labels).on(dark())
    return Shade(whole.colours[place * layers : (place + 1) * layers], whole.legend)


def draw_grids(found: Result, measure: HeadMeasure, selection: Selection) -> None:
    """Draw the grids of all checkpoints side by side."""
    every, title = found.only("measure"), f"All checkpoints: {measure.title}"
    log = measure.scale == "log"
    show("grids", every, title, selected=selection.cell, log=log, unit=measure.unit)


def draw_kinds(chosen: Chosen, asked: OverTrainingParams) -> None:
    """Draw the number of heads of each kind at every checkpoint."""
    if found := chosen.fetch(OverTraining, asked):
        title = f"Kinds of kernels over training, at n = {asked.query}"
        kinds = tuple(found.labels["measure"])
        show("kinds", found.only("count"), title, kinds=kinds, over=chosen.over)


def draw_kernel(chosen: Chosen, asked: KernelOverTrainingParams) -> None:
    """Draw one head's kernel at every checkpoint."""
    if found := chosen.fetch(KernelOverTraining, asked):
        title = f"Kernel of {asked.head} over training, at n = {asked.query}"
        show("kernel", found, title)


def draw_two_shares(
    chosen: Chosen, asked: OverTrainingParams, of_sinks: OverTrainingParams
) -> None:
    """Draw the selected head's induction score and its attention to the first token."""
    scores = chosen.fetch(OverTraining, asked)
    sinks = chosen.fetch(OverTraining, of_sinks)
    if scores is None or sinks is None:
        return
    if not np.array_equal(scores.coordinates["step"], sinks.coordinates["step"]):
        return  # one of them is still being computed
    selection = chosen.selection
    one, sink = (selection.of(each) for each in (scores, sinks))
    figure = partial(induction_and_sink, one, sink, chosen.over)
    title = f"Induction and attention to the first token, {selection.cell}"
    card("two-shares", figure, one, TWO_SHARES, title)
