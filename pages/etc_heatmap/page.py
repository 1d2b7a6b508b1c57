"""Landing page: a measure of all heads, by default the effective token count, and a kernel."""

import streamlit as st

from pages.etc_heatmap import captions as words
from pages.etc_heatmap.head_grid import Order, draw_grid, kind_thresholds
from pages.etc_heatmap.how_many import how_many_texts
from pages.etc_heatmap.introduction import introduce, offer_small_models
from pages.shared.cards import captions
from pages.shared.cards.card import card
from pages.shared.cards.plain import capital, plain
from pages.shared.grid.measures import MEASURES, Measure
from pages.shared.jobs import results
from pages.shared.selection.fit import fitted_index, linked
from pages.shared.selection.head_link import head_link
from pages.shared.selection.pins import compare_link, pin_button
from pages.shared.selection.place import Place, Screenshot
from pages.shared.selection.selection import Selection
from pages.shared.tables.summary import heads_table, summary
from poskernel_core.analyses.kernels.etc import EtcHeatMap, EtcParams
from poskernel_core.analyses.kernels.figures import head_curve
from poskernel_core.analyses.kernels.formulas import KINDS
from poskernel_core.analyses.kernels.kernel import KernelParams, PositionalKernel
from poskernel_core.analyses.measures import one_a_head
from poskernel_core.common.result import Result
from poskernel_core.export.files import identity

PLACE = Place("Map", picture=Screenshot())

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
    found = one_a_head(measure.declared, found, query=selection.query)
    first, at = measure.declared.title == ETC, identity(found).get("n")

    def draw() -> None:
        small = kernels is not None and st.toggle(
            "Kernels in the cells",
            True,
            help="each head's kernel as a small curve, larger on hover",
            **linked("curves"),
        )
        inside = kernels if small else None
        draw_grid(measure, found, here, selection, shown, order, inside)

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
    st.markdown(
        "The **effective token count** (ETC) is the number of tokens over which each head of "
        f"**{plain(selection.run.model.name)}** spreads its attention by position alone, at query "
        f"position {selection.query}. You can choose another measure below."
    )
    introduce()
    if selection.located.away:
        offer_small_models()
    colour, show, sort, kinds = st.columns([5, 6, 4, 3], vertical_alignment="bottom")
    geometry = selection.located.geometry
    offered = [title for title, measure in MEASURES.items() if measure.fits(geometry)]
    chosen = colour.selectbox("Colour heads by", offered, **fitted_index("measure", offered, ETC))
    shown = show.pills(
        "Show kinds", KINDS, default=KINDS, selection_mode="multi", **linked("kinds")
    )
    order = Order(sort.selectbox("Order of heads", list(Order), **linked("order")) or Order.NUMBER)
    with kinds.popover("Kinds", icon=":material/tune:", width="stretch"):
        thresholds = kind_thresholds()

    etc = results.fetch(EtcHeatMap, selection.run, EtcParams(skip=selection.skip, **thresholds))
    if etc is not None:
        left, right = st.columns([6, 5])
        here = etc.select(query=selection.query)
        local = selection.of(here)
        with right:  # first, because a click on a head waits for it
            asked = KernelParams(skip=selection.skip, query=selection.query)
            kernel = results.fetch(PositionalKernel, selection.run, asked)
            if kernel is not None:
                curve = selection.of(kernel)
                log_x = local.text_of("kind") == "local"
                card(
                    "kernel",
                    lambda: head_curve(curve, selection.query, log_x=log_x),
                    curve,
                    captions.CURVE,
                    f"{selection.cell} at n = {selection.query}",
                    also=log_x,
                )
        with left:
            draw_measure(selection, MEASURES[chosen or ETC], etc, set(shown), order, kernel)
            table = st.expander("All heads as a table", on_change="rerun", key="all-heads")
            if table.open:
                with table:
                    heads_table(here, set(shown))
            how_many_texts(selection, MEASURES[chosen or ETC])
        with right:
            summary(local, meanings=False)
            with st.container(horizontal=True, vertical_alignment="center", key="head-tools"):
                st.markdown(
                    head_link(selection.cell, f"Everything about {selection.cell}"), width="content"
                )
                pin_button(selection, "pin-head")
                compare_link()
