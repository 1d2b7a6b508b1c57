"""Landing page: a measure of all heads, by default the effective token count, and a kernel."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import numpy as np
import streamlit as st

from pages.etc_heatmap.head_grid import Order, draw_grid, kind_thresholds
from pages.shared.cards.card import DECIDING, card
from pages.shared.cards.embed import asks_for, in_place_of
from pages.shared.cards.explained import PICK, explained
from pages.shared.cards.one_head import draw_kernel
from pages.shared.cards.plain import capital
from pages.shared.cards.show import show
from pages.shared.choices.choices import alike, fit
from pages.shared.choices.fit import fitted_flag, fitted_index, fitted_list, fitted_number
from pages.shared.grid.measures import MEASURES, Measure, chosen_measure
from pages.shared.jobs import results
from pages.shared.jobs.pressed import compute_button, is_wanted, want
from pages.shared.look.fold import fold
from pages.shared.selection.head_choice import ranked
from pages.shared.selection.head_link import head_link, page_address
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from pages.shared.tables.summary import heads_table, summary
from poskernel_core.analyses.claims import ATTENTION, HALF
from poskernel_core.analyses.how_many_texts.spec import NOT_BY_GROUPS, HowManyTexts
from poskernel_core.analyses.kernels.etc import EtcHeatMap, EtcParams
from poskernel_core.analyses.kernels.formulas import KINDS
from poskernel_core.analyses.kernels.kernel import KernelParams, PositionalKernel
from poskernel_core.analyses.measures import one_a_head
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.export.files import identity
from poskernel_core.models.curated import BUNDLED_MODELS


def how_many_texts(selection: Selection, measure: Measure) -> None:
    """Draw the error of the chosen measure against windows, once the expander is open."""
    linked = fit(DECIDING, False, lambda texts: alike(texts[-1], True))
    key = HowManyTexts.name
    place = fold(HowManyTexts.title, key, wanted=asks_for(*CARDS), is_open=linked)
    if place is None:
        return
    with place:
        if not measure.counts_texts:
            st.caption(
                f"The {measure.declared.title} has no error over texts: choose another measure, "
                "such as the effective token count."
            )
            return
        params = measure.of_texts(selection)
        if params is None:
            with in_place_of(*CARDS):
                st.caption(NOT_BY_GROUPS)
            return
        units = {value.name: value.unit for value in measure.question.values}
        wanted = st.number_input(
            f"Wanted error ({units[measure.declared.value]})",
            placeholder="5 % or 0.02",
            **fitted_number("wanted", (0.0, math.inf), None),
        )
        if not (linked or is_wanted(key)):
            help_text = "from stored statistics, in some seconds"
            with in_place_of(*CARDS):
                compute_button("Compute it", "compute-how-many", want, key, help=help_text)
            return
        params = params.model_copy(update={"wanted": wanted or None})
        result = results.fetch(HowManyTexts, selection.run, params)
        if result is None:
            return
        curve, groups, heads = CARDS
        head = selection.of(result)
        show(curve, head.only("error", "enough", "law", "wanted"))
        show(groups, head.only("influence"))
        show(heads, result.only("error", "enough", "wanted"))


CARDS: Final = ("texts-curve", "texts-groups", "texts-map")


def draw_stories(selection: Selection) -> None:
    """Draw links to figures of this model that show something at once, as far as stored."""
    known = partial(results.known, run=selection.run, geometry=selection.located.geometry)
    links = [
        f"[{words}]({page_address(page, cell)}#{card}) ({cell})"
        for words, page, cell, card in stories(known)
    ]
    if links:
        st.markdown(f"**See** {' · '.join(links)}")


def stories(stored: Callable[[str], Result | None]) -> Iterator[tuple[str, str, str, str]]:
    """Yield what a link says, and where it leads: a page, a head and a card."""
    if previous := stored("previous-token"):
        by_position = np.array(previous.text_of("kind")) == "by position"
        scores = np.where(by_position, previous.values["previous_mass"], 0.0)
        if cell := _clearly(scores):
            yield "a head that looks one back by position alone", "previous_token", cell, "profile"
    for words, name, value, least, *place in STORIES:
        result = stored(name)
        if result and (cell := _clearly(result.values[value], least)):
            yield words, place[0], cell, place[1]


STORIES: Final = (
    ("an induction head", "induction-scores", "induction", ATTENTION, "induction_recency",
     "induction"),
    ("a head that looks for duplicates", "induction-scores", "duplicate", ATTENTION, "head",
     "induction"),
    ("a head that copies", "copying", "copying_share_first_layer", HALF, "head", "copying"),
    ("a sink", "sinks", "sink", ATTENTION, "head", "sinks"),
)  # fmt: skip
"""What a link says, the question and value of which it shows the largest, from a limit on."""


def _clearly(scores: np.ndarray, least: float = ATTENTION) -> str:
    """Return the head with the largest of ``scores``; empty unless that is large."""
    return next((head_name(*at) for at in ranked(scores)[:1] if scores[at] >= least), "")


STEPS: Final = (
    "A head attends to a token for its content and for its position. Average its keys over many "
    "texts, and only position is left: its **positional kernel**.",
    "Each cell below is a head with its kernel: dark if it covers few tokens, yellow if many.",
    "Point at a cell to see its kernel large. Click it, or walk with the arrow keys: every page "
    "shows the selected head.",
    "Press **/** to go to a head, a measure or a page, and **?** for all keys. "
    "[The tutorial](docs/tutorial.html) goes on from here.",
)


def introduce() -> None:
    """Draw the note at the first visit; the browser keeps a cookie of it."""
    if st.context.cookies.get("introduction") != "seen":
        with st.expander("New here? What you see, in four steps", True, key="introduction"):
            st.markdown("\n".join(f"1. {step}" for step in STEPS))


def offer_small_models() -> None:
    """Offer small models that compute at once, if the selected one has stored results only."""
    links = [
        f"[{name}]({page_address('etc_heatmap', model=name, head='')})" for name in BUNDLED_MODELS
    ]
    st.caption(f"Small models that compute live here: {' · '.join(links)}")


GRID = explained(
    "etc",
    "One cell per head, layers downwards. Dark blue: it attends to few tokens (local: most of "
    "its kernel lies in the last 10, unless changed under «Filter and order»). Magenta: its "
    "attention decays slowly. Yellow: it treats all positions nearly alike (uniform). The mark in "
    f"a cell is its kind; ★ marks a head with a known function. {PICK}",
    "etc",
    "kind",
)


PLACE = Place(
    "Map",
    "All heads of the model: over how many tokens does each spread its attention by "
    "position alone (its *effective token count*, ETC)?",
)

ETC = next(iter(MEASURES))


def draw_measure(
    selection: Selection,
    measure: Measure,
    etc: Result,
    visible_kinds: set[str],
    order: Order,
    kernels: Result | None,
    *,
    fade: bool,
) -> None:
    """Draw the grid by a measure, once it is computed; its cells may show ``kernels``."""
    here = etc.select(query=selection.query)
    measured = etc
    if measure.question is not EtcHeatMap:
        result = results.fetch(measure.question, selection.run, measure.params(selection))
        if result is None:
            return
        measured = result
    try:
        measured = one_a_head(measure.declared, measured, query=selection.query)
    except BadRequest as error:
        st.info(str(error))
        return
    first, at = measure.declared.title == ETC, identity(measured).get("n")

    def draw() -> None:
        small = kernels is not None and st.toggle(
            "Kernels in the cells",
            help="each head's kernel as a small curve, larger on hover",
            **fitted_flag("curves", True),
        )
        curves = kernels if small else None
        draw_grid(measure, measured, here, selection, visible_kinds, order, curves, fade=fade)

    card(
        "etc",
        None,
        here if first else measured.only(measure.declared.value),
        GRID if first else measure.words(),
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
        visible_kinds = st.pills(
            "Show kinds", selection_mode="multi", **fitted_list("kinds", KINDS, KINDS)
        )
        chosen = st.selectbox("Order of heads", **fitted_index("order", Order))
        order = Order(chosen or Order.NUMBER)
        thresholds = kind_thresholds()
        fade = st.toggle(
            "Fade heads whose kind is not resolved",
            help="the 95 % interval of a number holds a limit of the kinds",
            **fitted_flag("fade"),
        )
    kernel_params = KernelParams(skip=selection.skip, query=selection.query)
    limits = EtcParams(skip=selection.skip, **thresholds)
    if etc := results.fetch(EtcHeatMap, selection.run, limits, (PositionalKernel, kernel_params)):
        here = etc.select(query=selection.query)
        with right:  # first, because a click on a head waits for it
            if kernel := results.fetch(PositionalKernel, selection.run, kernel_params):
                draw_kernel(kernel, selection)
            summary(selection.of(here), meanings=False)
            st.markdown(head_link(selection.cell, f"Everything about {selection.cell}"))
        with grid:
            draw_measure(selection, measure, etc, set(visible_kinds), order, kernel, fade=fade)
        with left:
            if table := fold("All heads as a table", "all-heads"):
                with table:
                    heads_table(here, set(visible_kinds))
            how_many_texts(selection, measure)
    if selection.located.away:
        offer_small_models()
