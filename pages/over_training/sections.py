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


def draw_curves(result: Result, chosen: Chosen, theirs: Result | None) -> None:
    """Draw the measure of chosen heads against steps or tokens, and their emergence.

    Those of a second run stand beside them, on the same axes.
    """
    selection = chosen.selection
    layers, heads = result.values["change"].shape
    names = [head_name(layer, head) for layer in range(layers) for head in range(heads)]
    default = list(dict.fromkeys([selection.cell, *most_changed(result, FEW)]))
    cells = st.multiselect(
        "Heads",
        help="by default the selected head and those that changed the most",
        **fitted_list("tracked", names, default),
    )
    if not cells:
        st.info("Choose at least one head.", icon=":material/info:")
        return
    measure = result.params["measure"]
    title = f"{capital(measure)} over training"
    if theirs is None:
        show("curves", result, title, heads=tuple(cells), over=chosen.over)
    else:
        both = {"curves": (result, theirs), "curves-beside": (theirs, result)}
        for column, (name, (one, other)) in zip(st.columns(2), both.items(), strict=True):
            with column:
                named = f"{title}: {one.model_title}"
                show(name, one, named, heads=tuple(cells), over=chosen.over, beside=other)
    if table := fold("Emergence of all heads as a table", "emergence"):
        with table:
            rows, model = emergence_table(result), selection.run.model.name
            end = {"at the end": st.column_config.NumberColumn(format="%.3g")}
            leads = [page_address("head", cell, model=model) for cell in rows.data["head"]]
            choice_table(rows, "emergence-table", select_head, end, addresses=leads)
            errors_line(result)


def emergence_table(result: Result) -> Styler:
    """Return a row for every head, early emergence first; measures that fell come last."""
    last = result.select(step=int(result.coordinates["step"][-1]))
    columns = {
        "at the end": last.values["measure"],
        "change": result.values["change"],
        "emergence (step)": np.round(result.values["emergence"]),
        "not before": result.values["emergence_earliest"],
        "not after": result.values["emergence_latest"],
    }
    table = heads_frame(columns).sort_values("emergence (step)", kind="stable")
    steps = ["emergence (step)", "not before", "not after"]
    fell = table["emergence (step)"].isna() & table["change"].notna() & (table["at the end"] != 0)
    return (
        rounded_table(table, result, {"change": "change"})
        .format("{:,.0f}", subset=steps, na_rep="none")
        .format(na_rep="fell", subset=(fell, steps[:1]))
    )


def draw_step(result: Result, measure: HeadMeasure, selection: Selection) -> None:
    """Draw the grid of all heads at a chosen step, on one scale for all steps."""
    steps = result.coordinates["step"].tolist()
    step = st.select_slider("Step", **fitted("step", steps, steps[-1]))
    here = result.only("measure").select(step=int(step))

    def draw() -> None:
        shade = _shade_at(result, measure, steps.index(step))
        texts = head_texts(here, "measure", measure.title)
        draw_heads(shade, texts, measure.unit, selection, "training-grid")

    show("at-step", here, f"{capital(measure.title)} at step {step:,}", draw)


def _shade_at(result: Result, measure: HeadMeasure, place: int) -> Shade:
    """Return the colours of one step on the scale of all."""
    values = result.values["measure"].astype(float)
    steps, layers, heads = values.shape
    labels = result.labels.get("measure", ())
    values = values.reshape(steps * layers, heads)
    shade = shaded(values, measure.scale, measure.floor, labels).on(dark())
    return Shade(shade.colours[place * layers : (place + 1) * layers], shade.legend)


def draw_grids(result: Result, measure: HeadMeasure, selection: Selection) -> None:
    """Draw the grids of all checkpoints side by side."""
    every, title = result.only("measure"), f"All checkpoints: {measure.title}"
    log = measure.scale == "log"
    show("grids", every, title, selected=selection.cell, log=log, unit=measure.unit)


def draw_kinds(chosen: Chosen, params: OverTrainingParams) -> None:
    """Draw the number of heads of each kind at every checkpoint."""
    if result := chosen.fetch(OverTraining, params):
        title = f"Kinds of kernels over training, at n = {params.query}"
        kinds = tuple(result.labels["measure"])
        show("kinds", result.only("count"), title, kinds=kinds, over=chosen.over)


def draw_kernel(chosen: Chosen, params: KernelOverTrainingParams) -> None:
    """Draw one head's kernel at every checkpoint."""
    if result := chosen.fetch(KernelOverTraining, params):
        title = f"Kernel of {params.head} over training, at n = {params.query}"
        show("kernel", result, title)


def draw_two_shares(
    chosen: Chosen, of_scores: OverTrainingParams, of_sinks: OverTrainingParams
) -> None:
    """Draw the selected head's induction score and its attention to the first token."""
    scores = chosen.fetch(OverTraining, of_scores)
    sinks = chosen.fetch(OverTraining, of_sinks)
    if scores is None or sinks is None:
        return
    if not np.array_equal(scores.coordinates["step"], sinks.coordinates["step"]):
        return  # one of them is still being computed
    selection = chosen.selection
    one, sink = (selection.of(result) for result in (scores, sinks))
    figure = partial(induction_and_sink, one, sink, chosen.over)
    title = f"Induction and attention to the first token, {selection.cell}"
    card("two-shares", figure, one, TWO_SHARES, title)
