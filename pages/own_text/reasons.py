"""Why the chosen token looks at another: one score by what query and key are made of."""

from functools import partial
from typing import Any, Final

import numpy as np
import streamlit as st

from pages.own_text import captions as words
from pages.shared.cards.card import card
from pages.shared.jobs import results
from pages.shared.selection.fit import choose_one, fitted, linked
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.score_components.figures import AGAINST, keys_figure, score_figure
from poskernel_core.analyses.score_components.spec import ScoreComponents, ScoreComponentsParams

OTHER: Final = "against another key"


def draw_reasons(selection: Selection, text: str, query: int) -> None:
    """Draw the switch, and what the scores of the query are made of if it is on."""
    if not st.toggle("Split a score by what wrote the query and the key", **linked("split")):
        return
    asked = ScoreComponentsParams(text=text, head=selection.cell, skip=selection.skip, query=query)
    usual = results.fetch(ScoreComponents, selection.run, asked)
    if usual is None:
        return
    seen = np.flatnonzero(np.isfinite(usual.values["score"])).tolist()
    best = int(usual.values["chosen_key"])
    left, middle, right = st.columns([2, 4, 2], vertical_alignment="bottom")
    key = _choose("Key token (position)", "key", seen, best, left)
    with middle:
        against = choose_one("Score of the key", AGAINST, "against")
    chosen = {"key": key}
    if against == OTHER:
        rival = next((each for each in reversed(seen) if each != key), key)
        chosen["other"] = _choose("Other key (position)", "other", seen, rival, right)
    changed = asked.model_copy(update=chosen)
    found = (
        results.fetch(ScoreComponents, selection.run, changed) if chosen != {"key": best} else usual
    )
    if found is None:
        return
    title = f"{selection.cell}: why token {query} looks at token {key}"
    card("reasons", partial(score_figure, found, against), found, words.REASONS, title)
    title = f"{selection.cell}, query {query}: what the keys are made of"
    row = found.only("key_margin")
    card("stacks", partial(keys_figure, found, against), row, words.STACKS, title)


def _choose(label: str, name: str, seen: list[int], default: int, place: Any) -> int:
    """Draw the field of a key that the query sees."""
    return int(place.number_input(label, seen[0], seen[-1], **fitted(name, seen, default)))
