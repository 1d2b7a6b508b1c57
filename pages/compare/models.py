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
    names = [NONE, *(each.name for each in catalog.entries() if each.name != own)]
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
    found = []
    for number, (column, each) in enumerate(zip(st.columns(2), selections, strict=True)):
        with column:
            st.markdown(f"**{plain(each.located.title)}** :small[at n = {each.query}]")
            asked = measure.params(each)
            key, both = f"compute-model-{number}", ("model-0", "model-1")
            result = fetch_when_asked(measure.question, each.run, asked, key, *both)
            found.append(
                None if result is None else one_a_head(measure.declared, result, query=each.query)
            )
    there = [one for one in found if one is not None]
    if not there:
        return
    shade = _shade_of_all(measure, there)
    first = 0
    columns = st.columns(2)
    for number, (column, each, one) in enumerate(zip(columns, selections, found, strict=True)):
        if one is not None:
            layers, heads = one.values[measure.declared.value].shape
            rows = [row[:heads] for row in shade.colours[first : first + layers]]
            first += layers
            with column:
                _draw_grid(measure, one, each, Shade(rows, shade.legend), number)
    st.caption(
        "Both grids have the same scale. A click on the left grid selects a head; a click on the "
        "right grid pins one."
    )


def _shade_of_all(measure: Measure, found: list[Result]) -> Shade:
    """Return the colours of all models' layers, one model below the other, on one scale."""
    numbers = [each.values[measure.declared.value].astype(float) for each in found]
    widest = max(each.shape[1] for each in numbers)
    nothing = -1.0 if measure.declared.scale == "labels" else np.nan
    rows = [
        np.pad(each, ((0, 0), (0, widest - each.shape[1])), constant_values=nothing)
        for each in numbers
    ]
    most = measure.declared.most
    ends = [float(np.nanmax(each.values[most], initial=0)) if most else 0.0 for each in found]
    return measure.shade(found[int(np.argmax(ends))], np.concatenate(rows)).on(dark())


def _draw_grid(
    measure: Measure, found: Result, selection: Selection, shade: Shade, number: int
) -> None:
    """Draw one model's grid as a card; a click on a head of the second model pins it."""

    def pick(cell: str) -> None:
        add_pins(pin_of(selection, cell))

    def draw() -> None:
        draw_heads(
            shade,
            head_texts(found, measure.declared.value, measure.declared.title),
            measure.declared.unit,
            selection,
            f"model-grid-{number}",
            pick=pick if number else select_head,
        )

    card(
        f"model-{number}",
        None,
        found.only(measure.declared.value),
        measure.words(),
        f"{capital(measure.declared.title)}: {selection.located.title}",
        draw,
    )


def _draw_depth(measure: Measure, *selections: Selection) -> None:
    """Draw the measure by depth for the models with a stored result."""
    found, names = [], []
    for each in selections:
        asked = MeasureByDepthParams(
            measure=measure.declared.title, query=each.query, skip=each.skip
        )
        if results.missing(MeasureByDepth, each.run, asked):
            continue
        if result := results.fetch(MeasureByDepth, each.run, asked):
            found.append(result)
            names.append(each.located.title)
    if found:
        figures = {"": partial(depth_figure, found, names)}
        show("depth", found[0], f"{measure.declared.title} by depth", figures=figures)
