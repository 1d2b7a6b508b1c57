"""Pinned heads side by side: their kernels, distances and measures."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
import streamlit as st

from pages.shared.cards.card import card
from pages.shared.cards.embed import in_place_of
from pages.shared.cards.plain import plain
from pages.shared.cards.show import show, words_of
from pages.shared.choices.fit import fitted_list
from pages.shared.jobs import results
from pages.shared.jobs.pressed import fetch_known, is_wanted, offer
from pages.shared.selection.head_link import pin_link
from pages.shared.selection.pins import (
    PinnedHead,
    of_run,
    pin_button,
    pin_of,
    remove_all,
    remove_pin,
)
from pages.shared.selection.selection import Selection
from pages.shared.tables.tables import errors_line, markdown_table
from poskernel_core.analyses import find
from poskernel_core.analyses.base import QueryParams
from poskernel_core.analyses.claims import SCALE
from poskernel_core.analyses.comparison.folds import KernelFolds
from poskernel_core.analyses.comparison.measures import HeadsBeside, HeadsBesideParams
from poskernel_core.analyses.comparison.pins import nearest_position, read_pins, write_pins
from poskernel_core.analyses.comparison.spec import HeadDistances, HeadDistancesParams
from poskernel_core.analyses.comparison.views import pin_labels
from poskernel_core.common.errors import PosKernelError
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import as_printed, rounded, value_text
from poskernel_core.common.specs import DEFAULT_QUERY

LOG_DEFAULT: Final = ["offset"]
APART: Final = (
    "In brackets: by how many standard errors the head lies above (+) or below (−) the first "
    "head. Bold: {:.2f} or more, so that 0 lies outside the 95 % interval of the difference."
)


def draw_chosen(selection: Selection, kept: Sequence[PinnedHead]) -> None:
    """Draw the pinned heads, each with its link and a button that unpins it."""
    with st.container(horizontal=True, vertical_alignment="center", key="pinned"):
        for place, each in enumerate(kept):
            with st.container(
                horizontal=True,
                vertical_alignment="center",
                gap="small",
                width="content",
                border=True,
                key=f"pinned-{place}",
            ):
                st.markdown(
                    f"**{pin_link(each.pin)}** :small[{plain(of_run(each.pin))}]", width="content"
                )
                st.button(
                    f"Unpin {each.pin.cell}",
                    key=f"unpin-{place}",
                    icon=":material/close:",
                    type="tertiary",
                    help=each.pin.label,
                    on_click=remove_pin,
                    args=(each.pin,),
                )
    with st.container(horizontal=True, vertical_alignment="center", key="pin-tools"):
        if pin_of(selection) not in [each.pin for each in kept]:
            pin_button(selection, "pin-selected")
        if kept:
            st.button("Unpin all", key="unpin-all", icon=":material/keep_off:", on_click=remove_all)


def ready(kept: Sequence[PinnedHead], selection: Selection) -> list[PinnedHead]:
    """Return the heads whose kernels are stored or asked for; offer to compute the others."""
    there, absent = [], []
    for each in kept:
        query = nearest_position(each.run, selection.query)
        if query < selection.skip:
            st.info(
                plain(
                    f"{each.pin.label} has no key left at position {query} if the first "
                    f"{selection.skip} are skipped: choose a later query, or a smaller skip."
                )
            )
            continue
        asked = QueryParams(query=query, skip=selection.skip)
        request = results.plan(KernelFolds, each.run, asked)
        if results.engine().ready(request) or is_wanted(request.key):
            there.append(each)
        else:
            absent.append((each, request.key))
    if absent:
        names = ", ".join(each.pin.label for each, _ in absent)
        usual = QueryParams(query=DEFAULT_QUERY, skip=selection.skip)
        if all(
            DEFAULT_QUERY in each.run.positions
            and results.engine().ready(results.plan(KernelFolds, each.run, usual))
            for each, _ in absent
        ):
            names += f" (stored at n = {DEFAULT_QUERY}: move the query position there)"
        first, keys = absent[0][0].run.model, [key for _, key in absent]
        located = results.located(first.name, first.revision)
        with in_place_of():
            offer(plain(names), "Compute them", "compute-pins", *keys, located=located)
    return there


def draw_comparison(selection: Selection, kept: Sequence[PinnedHead]) -> None:
    """Draw kernels on one axis, distances, and measures of some heads."""
    heads = write_pins(each.pin for each in kept)
    asked = HeadDistancesParams(heads=heads, query=selection.query, skip=selection.skip)
    found = results.fetch(HeadDistances, kept[0].run, asked)
    if found is None:
        return
    log = st.pills(
        "Logarithmic axes",
        selection_mode="multi",
        **fitted_list("logpins", ["offset", "attention"], LOG_DEFAULT),
    )
    kernels = found.only("kernel", "etc", "position")
    on_x, on_y = "offset" in log, "attention" in log
    show("kernels", kernels, "Kernels on one axis", log_x=on_x, log_y=on_y)
    distances = found.only("distance")
    if len(kept) == 2:
        first, second = distances.axes["distance"]
        number = value_text(distances.select(**{first: 0, second: 1}), "distance")
        st.markdown(f"Distance between the two kernels: **{number}** ({SCALE}).")
    elif len(kept) > 2:
        show("distances", distances, "Distances between heads")
    _draw_measures(selection, kept, heads)


def _draw_measures(selection: Selection, kept: Sequence[PinnedHead], heads: str) -> None:
    """Draw the measures that are stored; offer to compute the others."""
    first = kept[0]
    whole = HeadsBesideParams(heads=heads, query=selection.query, skip=selection.skip)
    try:
        missing = results.missing(HeadsBeside, first.run, whole)
        key = f"beside {heads} {selection.query} {selection.skip}"
        every, found = results.plan(HeadsBeside, first.run, whole).parts, None
        if len(missing) < len(every) or is_wanted(key):
            found = fetch_known(HeadsBeside, first.run, whole, missing, key)
    except PosKernelError as error:
        st.info(plain(str(error)))
        return
    if found is not None:
        queries = [nearest_position(each.run, selection.query) for each in kept]
        draw = partial(_table, found, queries)
        card("measures", None, found, words_of(found), "Measures side by side", draw)
    if missing and not is_wanted(key):
        questions = dict.fromkeys(name.split(":", 1)[1] for name in missing)
        titles = ", ".join(plain(find(name).title) for name in questions)
        what, label = f"{titles} of some heads", "Compute the remaining measures"
        with in_place_of("measures"):
            offer(what, label, "compute-measures", key, located=selection.located)


def _table(found: Result, queries: Sequence[int]) -> None:
    """Draw the measures as a table, with a column for each head and its query position."""
    pins = [read_pins(text)[0] for text in found.words("heads")]
    labels = [
        f"{pin_link(pin, plain(label))}, n = {query}"
        for pin, label, query in zip(pins, pin_labels(found), queries, strict=True)
    ]
    rows = []
    measures = zip(found.words("measure"), found.words("unit"), strict=True)
    for row, (measure, unit) in enumerate(measures):
        of = "" if all(found.texts["word"][row]) else f" :small[({plain(unit)})]"
        cells = (measure_cell(found, row, place) for place in range(len(labels)))
        rows.append((measure + of, *cells))
    markdown_table(("Measure", *labels), rows)
    if len(labels) > 1:
        st.caption(APART.format(found.interval))
    errors_line(found)


def measure_cell(found: Result, row: int, place: int) -> str:
    """Return one measure of one head: number, error, and z-score against the first head."""
    word = str(found.texts["word"][row, place])
    if word:
        return word
    value = found.values["value"][row, place]
    text = plain(rounded(value, found.errors["value"][row, place]))
    apart = float(found.values["z_score"][row, place])
    if place == 0 or not np.isfinite(apart):
        return text
    gap = as_printed(f"{apart:+.1f}" if abs(apart) < 100 else f"{apart:+.0f}")
    return f"{text} (**{gap}**)" if abs(apart) >= found.interval else f"{text} ({gap})"
