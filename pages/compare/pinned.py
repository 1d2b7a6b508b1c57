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
        for place, pinned in enumerate(kept):
            with st.container(
                horizontal=True,
                vertical_alignment="center",
                gap="small",
                width="content",
                border=True,
                key=f"pinned-{place}",
            ):
                st.markdown(
                    f"**{pin_link(pinned.pin)}** :small[{plain(of_run(pinned.pin))}]",
                    width="content",
                )
                st.button(
                    f"Unpin {pinned.pin.cell}",
                    key=f"unpin-{place}",
                    icon=":material/close:",
                    type="tertiary",
                    help=pinned.pin.label,
                    on_click=remove_pin,
                    args=(pinned.pin,),
                )
    with st.container(horizontal=True, vertical_alignment="center", key="pin-tools"):
        if pin_of(selection) not in [head.pin for head in kept]:
            pin_button(selection, "pin-selected")
        if kept:
            st.button("Unpin all", key="unpin-all", icon=":material/keep_off:", on_click=remove_all)


def ready(kept: Sequence[PinnedHead], selection: Selection) -> list[PinnedHead]:
    """Return the heads whose kernels are stored or asked for; offer to compute the others."""
    there, absent = [], []
    for pinned in kept:
        query = nearest_position(pinned.run, selection.query)
        if query < selection.skip:
            st.info(
                plain(
                    f"{pinned.pin.label} has no key left at position {query} if the first "
                    f"{selection.skip} are skipped: choose a later query, or a smaller skip."
                )
            )
            continue
        params = QueryParams(query=query, skip=selection.skip)
        request = results.plan(KernelFolds, pinned.run, params)
        if results.engine().ready(request) or is_wanted(request.key):
            there.append(pinned)
        else:
            absent.append((pinned, request.key))
    if absent:
        names = ", ".join(head.pin.label for head, _ in absent)
        usual = QueryParams(query=DEFAULT_QUERY, skip=selection.skip)
        if all(
            DEFAULT_QUERY in head.run.positions
            and results.engine().ready(results.plan(KernelFolds, head.run, usual))
            for head, _ in absent
        ):
            names += f" (stored at n = {DEFAULT_QUERY}: move the query position there)"
        first, keys = absent[0][0].run.model, [key for _, key in absent]
        located = results.located(first.name, first.revision)
        with in_place_of():
            offer(plain(names), "Compute them", "compute-pins", *keys, located=located)
    return there


def draw_comparison(selection: Selection, kept: Sequence[PinnedHead]) -> None:
    """Draw kernels on one axis, distances, and measures of some heads."""
    heads = write_pins(pinned.pin for pinned in kept)
    params = HeadDistancesParams(heads=heads, query=selection.query, skip=selection.skip)
    result = results.fetch(HeadDistances, kept[0].run, params)
    if result is None:
        return
    log = st.pills(
        "Logarithmic axes",
        selection_mode="multi",
        **fitted_list("logpins", ["offset", "attention"], LOG_DEFAULT),
    )
    kernels = result.only("kernel", "etc", "position")
    on_x, on_y = "offset" in log, "attention" in log
    show("kernels", kernels, "Kernels on one axis", log_x=on_x, log_y=on_y)
    distances = result.only("distance")
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
    params = HeadsBesideParams(heads=heads, query=selection.query, skip=selection.skip)
    try:
        missing = results.missing(HeadsBeside, first.run, params)
        key = f"beside {heads} {selection.query} {selection.skip}"
        every, result = results.plan(HeadsBeside, first.run, params).parts, None
        if len(missing) < len(every) or is_wanted(key):
            result = fetch_known(HeadsBeside, first.run, params, missing, key)
    except PosKernelError as error:
        st.info(plain(str(error)))
        return
    if result is not None:
        queries = [nearest_position(pinned.run, selection.query) for pinned in kept]
        draw = partial(_table, result, queries)
        card("measures", None, result, words_of(result), "Measures side by side", draw)
    if missing and not is_wanted(key):
        questions = dict.fromkeys(name.split(":", 1)[1] for name in missing)
        titles = ", ".join(plain(find(name).title) for name in questions)
        what, label = f"{titles} of some heads", "Compute the remaining measures"
        with in_place_of("measures"):
            offer(what, label, "compute-measures", key, located=selection.located)


def _table(result: Result, queries: Sequence[int]) -> None:
    """Draw the measures as a table, with a column for each head and its query position."""
    pins = [read_pins(text)[0] for text in result.words("heads")]
    labels = [
        f"{pin_link(pin, plain(label))}, n = {query}"
        for pin, label, query in zip(pins, pin_labels(result), queries, strict=True)
    ]
    rows = []
    measures = zip(result.words("measure"), result.words("unit"), strict=True)
    for row, (measure, unit) in enumerate(measures):
        of = "" if all(result.texts["word"][row]) else f" :small[({plain(unit)})]"
        cells = (measure_cell(result, row, place) for place in range(len(labels)))
        rows.append((measure + of, *cells))
    markdown_table(("Measure", *labels), rows)
    if len(labels) > 1:
        st.caption(APART.format(result.interval))
    errors_line(result)


def measure_cell(result: Result, row: int, place: int) -> str:
    """Return one measure of one head: number, error, and z-score against the first head."""
    word = str(result.texts["word"][row, place])
    if word:
        return word
    value = result.values["value"][row, place]
    text = plain(rounded(value, result.errors["value"][row, place]))
    apart = float(result.values["z_score"][row, place])
    if place == 0 or not np.isfinite(apart):
        return text
    gap = as_printed(f"{apart:+.1f}" if abs(apart) < 100 else f"{apart:+.0f}")
    return f"{text} (**{gap}**)" if abs(apart) >= result.interval else f"{text} ({gap})"
