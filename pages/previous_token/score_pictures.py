"""One head's scores: the parts it reads from the helix, and the stages of its attention."""

from functools import partial
from typing import Final, Literal

import streamlit as st

from pages.previous_token import captions as words
from pages.shared.cards.card import card
from pages.shared.cards.figure import charts
from pages.shared.jobs import results
from pages.shared.selection.fit import choose_one
from pages.shared.selection.selection import Selection
from pages.shared.selection.source import choose_text
from pages.shared.selection.zoom import choose_zoom
from poskernel_core.analyses.helix.figures import tangents_figure
from poskernel_core.analyses.helix.tangent import Tangent, TangentParams
from poskernel_core.analyses.previous_token.figures import STAGE_TITLES, stage_figure
from poskernel_core.analyses.previous_token.stages import Stages, StagesParams
from poskernel_core.common.rounding import value_text

HELICES: Final[dict[str, Literal["texts", "repeated"]]] = {
    "windows of the corpus": "texts",
    "one token repeated": "repeated",
}


def draw_tangent(selection: Selection, reach: int) -> None:
    """Draw how the selected head reads the helix around the query position."""
    if selection.located.geometry.scheme != "learned":
        st.info(
            f"This model has {selection.located.geometry.scheme} positions: they enter queries and "
            "keys, not the residual stream, so there is no helix whose tangent a head could read."
        )
        return
    chosen = choose_one("Helix of", HELICES, "helixof")
    query = max(2, min(selection.query, selection.run.context - 2))
    asked = TangentParams(query=query, helix_from=HELICES[chosen])
    found = results.fetch(Tangent, selection.run, asked)
    if found is not None:
        head = selection.of(found)
        tangent, radius, third = (
            value_text(head, f"{part}_share") for part in ("tangent", "radial", "third")
        )
        title = f"Reading the helix around n = {query}"
        card("tangent", partial(tangents_figure, head, "", reach), head, words.TANGENT, title)
        st.caption(
            f"Shares of the reading direction: tangent {tangent}, radius {radius}, third direction "
            f"{third}. The helix of {chosen} explains the score with R² "
            f"{value_text(head, 'helix_fit')} (1 is best)."
        )


def draw_stages(selection: Selection) -> None:
    """Draw the three stages of the head's attention on one text, whole and in a window."""
    st.subheader(f"Three stages of {selection.cell} on a text", anchor="stages")
    text = choose_text()
    if text is None:
        return
    found = results.fetch(Stages, selection.run, StagesParams(head=selection.cell, **text))
    if found is None:
        return
    zoom = choose_zoom(len(found.values["score"]))
    for whole in (True, False) if zoom is not None else (True,):
        name = "whole" if whole else "window"

        def draw(whole: bool = whole, name: str = name) -> None:
            stage = partial(stage_figure, found, zoom=zoom, whole=whole)
            charts({f"{name}-{each}": partial(stage, name=each) for each in STAGE_TITLES})

        title = "The whole text"
        if zoom is not None and not whole:
            title = f"Positions {zoom[0]} to {zoom[1] - 1}"
        figure = partial(stage_figure, found, "pattern", zoom, whole=whole)
        card(f"stages-{name}", figure, found, words.STAGES, title, draw)
