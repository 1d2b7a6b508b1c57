"""Landing page: a measure of all heads, by default the effective token count, and a kernel."""

import streamlit as st

from pages.etc_heatmap import captions as words
from pages.etc_heatmap.head_grid import Order, draw_grid, kind_thresholds
from pages.etc_heatmap.how_many import how_many_texts
from pages.etc_heatmap.introduction import introduce, offer_small_models
from pages.etc_heatmap.stories import draw_stories
from pages.shared.cards.card import card
from pages.shared.cards.one_head import draw_kernel
from pages.shared.cards.plain import capital
from pages.shared.grid.measures import MEASURES, Measure, chosen_measure
from pages.shared.jobs import results
from pages.shared.selection.fit import linked
from pages.shared.selection.head_link import head_link
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from pages.shared.tables.summary import heads_table, summary
from poskernel_core.analyses.kernels.etc import EtcHeatMap, EtcParams
from poskernel_core.analyses.kernels.formulas import KINDS
from poskernel_core.analyses.kernels.kernel import KernelParams, PositionalKernel
from poskernel_core.analyses.measures import one_a_head
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import Result
from poskernel_core.export.files import identity

PLACE = Place(
    "Map",
    "All heads of the model: over how many tokens does each spread its attention by "
    "position alone?",
)

ETC = next(iter(MEASURES))


def draw_measure(
    selection: Selection,
    measure: Measure,
    etc: Result,
    shown: set[str],
    order: Order,
    kernels: Result | None,
) -> None:
    """Draw the grid by a measure, once it is computed; its cells may show ``kernels``."""
    here = etc.select(query=selection.query)
    found = etc
    if measure.question is not EtcHeatMap:
        asked = results.fetch(measure.question, selection.run, measure.params(selection))
        if asked is None:
            return
        found = asked
    try:
        found = one_a_head(measure.declared, found, query=selection.query)
    except BadRequest as error:
        st.info(str(error))
        return
    first, at = measure.declared.title == ETC, identity(found).get("n")

    def draw() -> None:
        small = kernels is not None and st.toggle(
            "Kernels in the cells",
            True,
            help="each head's kernel as a small curve, larger on hover",
            **linked("curves"),
        )
        draw_grid(measure, found, here, selection, shown, order, kernels if small else None)

    card(
        "etc",
        None,
        here if first else found.only(measure.declared.value),
        words.GRID if first else measure.words(),
        capital(measure.declared.title) + (f" at n = {at}" if at else ""),
        draw=draw,
    )


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    introduce()
    draw_stories(selection)
    measure = chosen_measure()
    left, right = st.columns([6, 5])
    grid, filters = left.container(), left.expander("Filter and order", key="filters")
    with filters:
        shown = st.pills(
            "Show kinds", KINDS, default=KINDS, selection_mode="multi", **linked("kinds")
        )
        chosen = st.selectbox("Order of heads", list(Order), **linked("order"))
        order = Order(chosen or Order.NUMBER)
        thresholds = kind_thresholds()
    asked = KernelParams(skip=selection.skip, query=selection.query)
    limits = EtcParams(skip=selection.skip, **thresholds)
    etc = results.fetch(EtcHeatMap, selection.run, limits, (PositionalKernel, asked))
    if etc is not None:
        here = etc.select(query=selection.query)
        with right:  # first, because a click on a head waits for it
            kernel = results.fetch(PositionalKernel, selection.run, asked)
            if kernel is not None:
                draw_kernel(kernel, selection)
            summary(selection.of(here), meanings=False)
            st.markdown(head_link(selection.cell, f"Everything about {selection.cell}"))
        with grid:
            draw_measure(selection, measure, etc, set(shown), order, kernel)
        with left:
            table = st.expander("All heads as a table", on_change="rerun", key="all-heads")
            if table.open:
                with table:
                    heads_table(here, set(shown))
            how_many_texts(selection, measure)
    if selection.located.away:
        offer_small_models()
