"""How many texts are enough: an expander of the landing page."""

from typing import Final

import streamlit as st

from pages.shared.cards.card import card
from pages.shared.cards.embed import asks_for, in_place_of
from pages.shared.cards.explained import explained
from pages.shared.grid.measures import Measure
from pages.shared.jobs import results
from pages.shared.jobs.pressed import compute_button, is_wanted, want
from pages.shared.selection.fit import linked
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.base import Experiment
from poskernel_core.analyses.how_many_texts.figures import enough_map, error_curve
from poskernel_core.analyses.how_many_texts.spec import HowManyTexts, HowManyTextsParams


def how_many_texts(selection: Selection, measure: Measure) -> None:
    """Draw the error of the chosen measure against windows, once the expander is open."""
    fold = st.expander(HowManyTexts.title, on_change="rerun", key="how-many-texts")
    if not (fold.open or asks_for(*CARDS)):
        return
    with fold:
        named = {value.name: value.unit for value in measure.question.values if value.has_error}
        if issubclass(measure.question, Experiment) or measure.declared.value not in named:
            st.caption(
                f"The {measure.declared.title} has no error over texts: choose another measure, "
                "such as the effective token count."
            )
            return
        wanted = st.number_input(
            f"Wanted error ({named[measure.declared.value]})",
            min_value=0.0,
            value=None,
            placeholder="5 % or 0.02",
            **linked("wanted"),
        )
        if not is_wanted(HowManyTexts.name):
            told = "from stored statistics, in some seconds"
            with in_place_of(*CARDS):
                compute_button("Compute it", "compute-how-many", want, HowManyTexts.name, help=told)
            return
        asked = HowManyTextsParams(
            measure=measure.declared.title,
            query=selection.query,
            skip=selection.skip,
            wanted=wanted or None,
        )
        found = results.fetch(HowManyTexts, selection.run, asked)
        if found is None:
            return
        one = selection.of(found)
        curve, heads = CARDS
        card(curve, lambda: error_curve(one), one, explained(found.analysis, CURVE))
        card(heads, lambda: enough_map(found), found, explained(found.analysis, MAP))


CARDS: Final = ("texts-curve", "texts-map")
CURVE: Final = (
    "The error of the head's number, computed from two groups of texts, from half of the groups, "
    "and from all. Dashed: the fitted curve if the error falls as 1/√windows (four times as many "
    "windows, half the error). Dotted: the wanted error. Where the two lines "
    "meet, there are enough windows."
)
MAP: Final = (
    "How many windows give each head's number the wanted error: dark heads need few, bright ones "
    "many."
)
