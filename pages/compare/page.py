"""Heads of any models and runs side by side, and two whole models."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import streamlit as st

from pages.compare.models import draw_models
from pages.compare.pinned import draw_chosen, draw_comparison, ready
from pages.shared.cards.plain import plain, say, say_error
from pages.shared.jobs import results
from pages.shared.selection.head_link import pin_address
from pages.shared.selection.host import offered
from pages.shared.selection.pins import PinnedHead, add_pins, kept_pins, of_run, pin_of, refusals
from pages.shared.selection.place import Place
from pages.shared.selection.selection import Selection
from pages.shared.tables.tables import choice_table
from poskernel_core.analyses.comparison.pins import MAX_PINS, Pin, nearest_position
from poskernel_core.analyses.kernels.kernel import KernelParams, PositionalKernel
from poskernel_core.common.errors import PosKernelError
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.rounding import counted
from poskernel_core.engine.nearest_kernels import Alike, heads_like
from poskernel_core.models.catalog import Located


def draw_alike(selection: Selection, kept: Sequence[PinnedHead]) -> None:
    """Draw the heads whose kernels are nearest to that of the selected head, or of a pinned one."""
    st.subheader("Heads like this one", anchor="alike")
    own = PinnedHead(pin_of(selection), selection.run)
    of_one = {pinned.pin.model for pinned in kept} <= {own.pin.model}  # whose title stands above
    by_label = {
        " ".join([pinned.pin.cell, pinned.pin.settings]).strip()
        if of_one
        else pinned.pin.label: pinned
        for pinned in [own, *kept]
    }
    chosen = by_label.get(st.selectbox("Heads like", list(by_label), key="alike-head") or "", own)
    query = nearest_position(chosen.run, selection.query)
    params = KernelParams(query=query, skip=selection.skip)
    result = results.fetch(PositionalKernel, chosen.run, params)
    if result is None:
        return
    geometry = results.located(chosen.run.model.name, chosen.run.model.revision).geometry
    layer, head = parse_cell(chosen.pin.cell, geometry.n_layers, geometry.n_heads)
    one = result.select(layer=layer, head=head)
    seen = int(one.values["visible_keys"])

    def by_offset(row: np.ndarray) -> np.ndarray:
        turned = row[: query + 1][::-1].astype(float)
        turned[seen:] = np.nan
        return turned

    alike = heads_like(
        results.engine().store,
        chosen.pin,
        by_offset(one.values["kernel"]),
        by_offset(one.errors["kernel"]),
        query=query,
        skip=selection.skip,
        offered=offered,
        located=_located,
    )
    _draw(alike, chosen.pin)


def _draw(alike: Alike, pin: Pin) -> None:
    rest = "" if alike.whole else " Time ran out, so some stored heads were not compared."
    st.markdown(
        f"Sorted by the distance between their kernels and that of **{plain(pin.label)}**. "
        f"Compared: {counted(alike.compared, 'head')} of {counted(alike.runs, 'run')} whose "
        f"kernels are stored with the same skip.{rest} Tick a row to pin its head; the "
        "head's name opens its page. Of a model's checkpoints and runs, a head's nearest is shown."
    )
    if not alike.heads:
        if alike.whole:
            say("No kernels of other runs are stored yet: open the page «Map» for another model.")
        return
    table = pd.DataFrame(
        {
            "head": [head.pin.cell for head in alike.heads],
            "of": [of_run(head.pin) for head in alike.heads],
            "distance": [head.distance for head in alike.heads],
            "error, at most": [head.largest_error for head in alike.heads],
            "n": [head.query for head in alike.heads],
        }
    )
    number = st.column_config.NumberColumn
    choice_table(
        table,
        "alike-table",
        add_pins,
        {
            "of": st.column_config.TextColumn(
                help="model, and settings of its run that are not the defaults"
            ),
            "distance": number("TV distance", format="%.3f", help="0: equal, 1: disjoint"),
            "error, at most": number(
                format="%.3f",
                help="upper bound of the standard error; pin the head for the error itself",
            ),
            "n": number(help="query position of that run's kernels, tokens"),
        },
        offered=[head.pin for head in alike.heads],
        addresses=[pin_address(head.pin) for head in alike.heads],
    )


def _located(model: str, revision: str | None) -> Located | None:
    try:
        return results.located(model, revision)
    except PosKernelError:
        return None


PLACE = Place(
    "Compare",
    "Heads of any models side by side: their kernels, distances and measures.",
    questions=("compare-kernels", "compare-heads", "kernel-replicates", "depth"),
)


def page(selection: Selection) -> None:
    """Draw the page for what is chosen."""
    kept, refused = kept_pins()
    if not kept:
        st.markdown(
            f"No head is pinned yet. Pin up to {MAX_PINS} heads, of any models, revisions and "
            "corpora, here or on the pages «Map» and «Overview», to see their kernels, distances "
            "and measures side by side. The address keeps them."
        )
    refusals(refused)
    draw_chosen(selection, kept)
    try:
        with st.container():  # so that widgets below keep their places
            there = ready(kept, selection)
            if there:
                draw_comparison(selection, there)
        with st.container():
            draw_alike(selection, kept)
        draw_models(selection)
    except PosKernelError as error:
        say_error(str(error))
