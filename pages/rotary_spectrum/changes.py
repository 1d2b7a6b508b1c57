"""Bands changed inside the model: which heads, and what it does to loss and attention."""

from functools import partial
from typing import Any, Final

import streamlit as st

from pages.rotary_spectrum import captions as words
from pages.shared.cards.card import card, charts
from pages.shared.jobs import results
from pages.shared.selection.fit import linked
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.rotary.bands import (
    CHANGES,
    TREATMENTS,
    ChangedBands,
    ChangedBandsParams,
)
from poskernel_core.analyses.rotary.figures import losses_figure, profiles_figure
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import value_and_bias

EVERYWHERE, LAYER, HEAD = "all heads", "the selected layer", "the selected head"
WHERE: Final = (EVERYWHERE, LAYER, HEAD)


def draw_changes(selection: Selection, bands: dict[str, Any]) -> None:
    """Draw what changed bands do, where asked for: it runs the model again."""
    st.subheader("What is lost without a band?", anchor="changes")
    if not st.toggle(
        "Run the model with each band frozen, and removed, on 8 windows of the corpus",
        False,
        **linked("changed"),
    ):
        return
    where = st.segmented_control(
        "Changed in", WHERE, default=EVERYWHERE, required=True, **linked("changedin")
    )
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
        each = {f"changed-{name}": profiles_figure(shown, name, log_x=True) for name in TREATMENTS}
        charts(each)
        st.markdown(_table(shown))

    title = f"Attention of {head.params['head']}"
    card("changed-pattern", frozen, shown, words.CHANGED_PATTERN, title, draw)


def _table(head: Result) -> str:
    """Return a table of what each change does to the head."""
    lines = [
        "| Run | Distance of the pattern (TV) | Attention to the previous token | Change |",
        "|:--|:--|:--|:--|",
    ]
    for place, change in enumerate(CHANGES):
        run = head.select(change=place)
        names = ("pattern_distance", "previous_mass", "previous_mass_change")
        told = [value_and_bias(run, name) for name in names]
        lines.append(f"| {change} | {' | '.join(told if place else ['', told[1], ''])} |")
    return "\n".join(lines)
