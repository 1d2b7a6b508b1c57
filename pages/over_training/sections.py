"""The figures of the page on heads over training."""

from functools import partial

import numpy as np
import streamlit as st
from pandas.io.formats.style import Styler

from pages.over_training import captions as words
from pages.over_training.run import Chosen
from pages.shared.cards.card import card
from pages.shared.cards.plain import capital
from pages.shared.grid.measure_grid import draw_heads, head_texts
from pages.shared.grid.measures import shade_of
from pages.shared.selection.fit import fitted, fitted_list
from pages.shared.selection.head_link import page_address
from pages.shared.selection.selection import Selection, select_head
from pages.shared.tables.tables import choice_table, errors_line, heads_frame, rounded_table
from poskernel_core.analyses.head_measure import HeadMeasure
from poskernel_core.analyses.training.figures import (
    count_figure,
    curves_figure,
    grids_figure,
    induction_and_sink_figure,
    kernel_over_training_figure,
    most_changed,
)
from poskernel_core.analyses.training.spec import (
    KernelOverTraining,
    KernelOverTrainingParams,
    OverTraining,
    OverTrainingParams,
)
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.plotting.shades import Shade

FEW = 3


def draw_curves(found: Result, chosen: Chosen) -> None:
    """Draw the measure of chosen heads against steps or tokens, and their emergence."""
    selection = chosen.selection
    layers, heads = found.values["change"].shape
    names = [head_name(layer, head) for layer in range(layers) for head in range(heads)]
    default = list(dict.fromkeys([selection.cell, *most_changed(found, FEW)]))
    shown = st.multiselect(
        "Heads",
        names,
        help="by default the selected head and those that changed the most",
        **fitted_list("tracked", names, default),
    )
    if not shown:
        st.info("Choose at least one head.", icon=":material/info:")
        return
    measure = found.params["measure"]
    figure = partial(curves_figure, found, shown, chosen.over)
    card("curves", figure, found, words.CURVES, f"{capital(measure)} over training")
    table = st.expander("Emergence of all heads as a table", on_change="rerun", key="emergence")
    if table.open:
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
    step = st.select_slider("Step", steps, **fitted("step", steps, steps[-1]))
    here = found.only("measure").select(step=int(step))

    def draw() -> None:
        shade = _shade_at(found, measure, steps.index(step))
        texts = head_texts(here, "measure", measure.title)
        draw_heads(shade, texts, measure.unit, selection, "training-grid")

    card("at-step", None, here, words.AT_STEP, f"{capital(measure.title)} at step {step:,}", draw)


def _shade_at(found: Result, measure: HeadMeasure, place: int) -> Shade:
    """Return the colours of one step on the scale of all."""
    values = found.values["measure"].astype(float)
    steps, layers, heads = values.shape
    labels = found.labels.get("measure", ())
    whole = shade_of(measure, labels, values.reshape(steps * layers, heads))
    return Shade(whole.colours[place * layers : (place + 1) * layers], whole.legend)


def draw_grids(found: Result, measure: HeadMeasure, selection: Selection) -> None:
    """Draw the grids of all checkpoints side by side."""
    log = measure.scale == "log"
    figure = partial(grids_figure, found, selection.cell, log=log, unit=measure.unit)
    card("grids", figure, found, words.GRIDS, f"All checkpoints: {measure.title}")


def draw_kinds(chosen: Chosen, asked: OverTrainingParams) -> None:
    """Draw the number of heads of each kind at every checkpoint."""
    found = chosen.fetch(OverTraining, asked)
    if found is not None:
        title = f"Kinds of kernels over training, at n = {asked.query}"
        card("kinds", partial(count_figure, found, chosen.over), found, words.KINDS, title)


def draw_kernel(chosen: Chosen, asked: KernelOverTrainingParams) -> None:
    """Draw one head's kernel at every checkpoint."""
    found = chosen.fetch(KernelOverTraining, asked)
    if found is not None:
        title = f"Kernel of {asked.head} over training, at n = {asked.query}"
        card("kernel", partial(kernel_over_training_figure, found), found, words.KERNEL, title)


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
    figure = partial(induction_and_sink_figure, one, sink, chosen.over)
    title = f"Induction and attention to the first token, {selection.cell}"
    card("two-shares", figure, one, words.TWO_SHARES, title)
