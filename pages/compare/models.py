"""Two whole models side by side: their grids by one measure, and the measure by depth."""

from functools import partial
from typing import Final

import numpy as np
import streamlit as st

from pages.shared.cards.card import card
from pages.shared.cards.figure import dark
from pages.shared.cards.plain import capital, plain, say_error
from pages.shared.cards.show import show
from pages.shared.choices.fit import fitted_index
from pages.shared.grid.measure_grid import draw_heads, head_texts
from pages.shared.grid.measures import MEASURES, Measure, titles_for
from pages.shared.jobs import results
from pages.shared.jobs.pressed import fetch_when_asked
from pages.shared.selection.pins import add_pins, pin_of, with_model
from pages.shared.selection.selection import Selection, select_head
from poskernel_core.analyses.comparison.measures import MeasureByDepth, MeasureByDepthParams
from poskernel_core.analyses.comparison.views import depth_figure
from poskernel_core.analyses.measures import one_a_head
from poskernel_core.common.errors import PosKernelError
from poskernel_core.common.result import Result
from poskernel_core.models import catalog
from poskernel_core.plotting.shades import Shade

NONE: Final = "no other model"


def draw_models(selection: Selection) -> None:
    """Draw the selected model beside another one."""
    st.subheader("Two models side by side", anchor="models")
    own = selection.run.model.name
    left, right = st.columns(2)
    names = [NONE, *(entry.name for entry in catalog.entries() if entry.name != own)]
    name = left.selectbox(
        "Second model", format_func=catalog.title_here, **fitted_index("second", names, NONE)
    )
    if name in (None, NONE):
        st.caption("Choose a second model. Both models are then drawn by the same measure.")
        return
    try:
        other = with_model(selection, name)
    except PosKernelError as error:
        say_error(str(error))
        return
    titles = titles_for(selection.located.geometry, other.located.geometry)
    chosen = right.selectbox("Measure of both", **fitted_index("compared", titles, titles[0]))
    measure = MEASURES[chosen or titles[0]]
    _draw_grids(measure, selection, other)
    if measure.declared.scale != "labels":
        _draw_depth(measure, selection, other)


def _draw_grids(measure: Measure, *selections: Selection) -> None:
    """Draw the grids of both models on one scale of colours."""
    head_results = []
    for number, (column, selection) in enumerate(zip(st.columns(2), selections, strict=True)):
        with column:
            st.markdown(f"**{plain(selection.located.title)}** :small[at n = {selection.query}]")
            params = measure.params(selection)
            key, both = f"compute-model-{number}", ("model-0", "model-1")
            result = fetch_when_asked(measure.question, selection.run, params, key, *both)
            head_results.append(
                None
                if result is None
                else one_a_head(measure.declared, result, query=selection.query)
            )
    there = [one for one in head_results if one is not None]
    if not there:
        return
    shade = _shade_of_all(measure, there)
    first = 0
    columns = st.columns(2)
    for number, (column, selection, one) in enumerate(
        zip(columns, selections, head_results, strict=True)
    ):
        if one is not None:
            layers, heads = one.values[measure.declared.value].shape
            rows = [row[:heads] for row in shade.colours[first : first + layers]]
            first += layers
            with column:
                _draw_grid(measure, one, selection, Shade(rows, shade.legend), number)
    st.caption(
        "Both grids have the same scale. A click on the left grid selects a head; a click on the "
        "right grid pins one."
    )


def _shade_of_all(measure: Measure, head_results: list[Result]) -> Shade:
    """Return the colours of all models' layers, one model below the other, on one scale."""
    numbers = [result.values[measure.declared.value].astype(float) for result in head_results]
    widest = max(array.shape[1] for array in numbers)
    nothing = -1.0 if measure.declared.scale == "labels" else np.nan
    rows = [
        np.pad(array, ((0, 0), (0, widest - array.shape[1])), constant_values=nothing)
        for array in numbers
    ]
    most = measure.declared.most
    ends = [
        float(np.nanmax(result.values[most], initial=0)) if most else 0.0 for result in head_results
    ]
    return measure.shade(head_results[int(np.argmax(ends))], np.concatenate(rows)).on(dark())


def _draw_grid(
    measure: Measure, result: Result, selection: Selection, shade: Shade, number: int
) -> None:
    """Draw one model's grid as a card; a click on a head of the second model pins it."""

    def pick(cell: str) -> None:
        add_pins(pin_of(selection, cell))

    def draw() -> None:
        draw_heads(
            shade,
            head_texts(result, measure.declared.value, measure.declared.title),
            measure.declared.unit,
            selection,
            f"model-grid-{number}",
            pick=pick if number else select_head,
        )

    card(
        f"model-{number}",
        None,
        result.only(measure.declared.value),
        measure.words(),
        f"{capital(measure.declared.title)}: {selection.located.title}",
        draw,
    )


def _draw_depth(measure: Measure, *selections: Selection) -> None:
    """Draw the measure by depth for the models with a stored result."""
    depth_results, names = [], []
    for selection in selections:
        params = MeasureByDepthParams(
            measure=measure.declared.title, query=selection.query, skip=selection.skip
        )
        if results.missing(MeasureByDepth, selection.run, params):
            continue
        if result := results.fetch(MeasureByDepth, selection.run, params):
            depth_results.append(result)
            names.append(selection.located.title)
    if depth_results:
        figures = {"": partial(depth_figure, depth_results, names)}
        show("depth", depth_results[0], f"{measure.declared.title} by depth", figures=figures)
