"""Bands of wavelengths changed inside the model: the effect on loss and attention."""

from functools import partial
from typing import Any

import streamlit as st

from pages.rotary_spectrum import captions as words
from pages.shared.cards.card import card
from pages.shared.cards.figure import charts
from pages.shared.jobs import results
from pages.shared.selection.fit import choose_one, linked
from pages.shared.selection.selection import Selection
from pages.shared.tables.tables import markdown_table
from poskernel_core.analyses.rotary.bands import (
    CHANGES,
    TREATMENTS,
    ChangedBands,
    ChangedBandsParams,
)
from poskernel_core.analyses.rotary.figures import losses_figure, profiles_figure
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import value_and_bias

LAYER, HEAD = "the selected layer", "the selected head"


def draw_changes(selection: Selection, bands: dict[str, Any]) -> None:
    """Draw the effect of changed bands, if asked for, since the model runs again."""
    st.subheader("What is lost without a band?", anchor="changes")
    if not st.toggle(
        "Run the model with each band frozen, and removed, on 8 windows of the corpus",
        False,
        **linked("changed"),
    ):
        return
    where = choose_one("Changed in", ("all heads", LAYER, HEAD), "changedin")
    asked = ChangedBandsParams(
        head=selection.cell,
        heads=selection.cell if where == HEAD else "",
        layers=f"{selection.layer}" if where == LAYER else "",
        **bands,
    )
    found = results.fetch(ChangedBands, selection.run, asked)
    if found is None:
        return
    loss = found.only("loss", "loss_change")
    card("changed-loss", partial(losses_figure, loss), loss, words.CHANGED_LOSS)
    _draw_pattern(selection.of(found))


def _draw_pattern(head: Result) -> None:
    """Draw the selected head's attention in all runs."""
    shown = head.only("profile", "pattern_distance", "previous_mass", "previous_mass_change")
    frozen = partial(profiles_figure, shown, TREATMENTS[0], log_x=True)

    def draw() -> None:
        changed = partial(profiles_figure, shown, log_x=True)
        charts({f"changed-{name}": partial(changed, treatment=name) for name in TREATMENTS})
        _draw_table(shown)

    title = f"Attention of {head.params['head']}"
    card("changed-pattern", frozen, shown, words.CHANGED_PATTERN, title, draw)


def _draw_table(head: Result) -> None:
    """Draw a table of the effect of each change on the head."""
    rows = []
    for place, change in enumerate(CHANGES):
        run = head.select(change=place)
        names = ("pattern_distance", "previous_mass", "previous_mass_change")
        told = [value_and_bias(run, name) for name in names]
        rows.append([change, *(told if place else ["", told[1], ""])])
    header = ("Run", "Distance of the pattern (TV)", "Attention to the previous token", "Change")
    markdown_table(header, rows)
