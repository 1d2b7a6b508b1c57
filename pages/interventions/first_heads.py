"""The first heads of a measure, or all of one kind, as a set to silence."""

from typing import Final

import numpy as np
import streamlit as st

from pages.shared.choices.choices import choose
from pages.shared.grid.measures import MEASURES
from pages.shared.jobs.pressed import fetch_when_asked
from pages.shared.look.fold import fold
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.measures import one_a_head
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result

FIRST: Final = "induction score"
ENDS: Final = ("largest", "smallest")
MOST: Final = 100


def offer_first_heads(selection: Selection, key: str) -> None:
    """Draw a menu that fills the field ``key`` with heads, chosen by a measure."""
    if not (menu := fold("Choose heads by a measure", "first-heads")):
        return
    with menu:
        fitting = [each for each, one in MEASURES.items() if one.fits(selection.located.geometry)]
        chosen = st.selectbox("Measure", fitting, fitting.index(FIRST), key="first-measure")
        measure = MEASURES[chosen or FIRST]
        asked = measure.params(selection)
        found = fetch_when_asked(measure.question, selection.run, asked, "compute-first-heads")
        if found is None:
            return
        one = one_a_head(measure.declared, found, query=selection.query)
        cells = _choose(one, measure.declared.value)
        st.caption(", ".join(cells) or "No head.")
        st.button(
            "Take these heads",
            disabled=not cells,
            on_click=choose,
            args=(key, ", ".join(cells)),
            key="take-heads",
        )


def _choose(one: Result, name: str) -> list[str]:
    """Draw the choice of a kind, or of an end and a number; return the heads, the first first."""
    values = one.values[name].astype(float)
    if labels := one.labels.get(name):
        kind = st.selectbox("Kind", labels, key="first-kind")
        return [head_name(*map(int, at)) for at in np.argwhere(values == labels.index(kind))]
    end = st.segmented_control("Which", ENDS, default=ENDS[0], required=True, key="first-end")
    count = st.number_input("How many heads", 1, MOST, 5, key="first-count")
    return first_heads(values if end == ENDS[1] else -values, count)


def first_heads(values: np.ndarray, count: int) -> list[str]:
    """Return the heads with the smallest of ``values [layer, head]``, without those of NaN."""
    order = np.argsort(values, axis=None, kind="stable")[:count]
    places = zip(*np.unravel_index(order, values.shape), strict=True)
    return [head_name(*map(int, at)) for at in places if np.isfinite(values[at])]
