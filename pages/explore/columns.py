"""What heads can be laid out by: every measure of ours, and the columns of readers' tables."""

from typing import Any, Final

import numpy as np
import streamlit as st

from pages.explore.scatter import Column
from pages.shared.cards.card import Explanation
from pages.shared.cards.explained import explained
from pages.shared.cards.plain import capital, plain
from pages.shared.grid.measures import MEASURES
from pages.shared.selection.fit import fitted_index
from poskernel_core.common.result import Result

FIRST: Final = {"x": "effective token count", "y": "attention entropy", "colour": "attention sink"}


def our_columns(found: Result) -> dict[str, Column]:
    """Return every measure of a model by its title."""
    columns = {}
    for place, title in enumerate(found.words("measure")):
        kinds = tuple(kind for kind in found.texts["kinds"][place] if kind)
        columns[title] = Column(
            title,
            str(found.texts["unit"][place]) if not kinds else "",
            found.values["value"][place],
            None if np.isnan(found.errors["value"][place]).all() else found.errors["value"][place],
            found.biases["value"][place] if found.biases else None,
            MEASURES[title].declared.scale,
            kinds,
        )
    return columns


def choose_three(columns: dict[str, Column]) -> tuple[Column, Column, Column]:
    """Draw the lists of both axes and of the colour; return what is chosen."""
    numbers = [name for name, column in columns.items() if not column.labels]
    across, up, coloured = st.columns(3)
    x = _choose(across, "Across", "x", numbers)
    y = _choose(up, "Upwards", "y", numbers)
    colour = _choose(coloured, "Colour", "colour", list(columns))
    return columns[x], columns[y], columns[colour]


def _choose(place: Any, label: str, key: str, offered: list[str]) -> str:
    first = FIRST[key] if FIRST[key] in offered else offered[0]
    chosen: str = place.selectbox(label, offered, **fitted_index(key, offered, first))
    return chosen


def words(three: tuple[Column, Column, Column]) -> Explanation:
    """Return how to read the points, and the formula of each of our measures that they show."""
    reading = (
        "One point per head; hovering names it with its values and their standard errors. The "
        "large ring is the selected head, small rings are the chosen ones. Points far from the "
        "others, and groups of them, are what to look for: a measure alone does not make a head "
        "of a kind."
    )
    distinct = {column.heading: column for column in three}
    theirs = [column for column in distinct.values() if column.source]
    if theirs:
        named = "; ".join(f"{plain(each.title)} from {plain(each.source)}" for each in theirs)
        reading += f" Not ours, and shown as they came: {named}."
    formulas = []
    for column in distinct.values():
        if not column.source:
            measure = MEASURES[column.title]
            formula = explained(measure.question.name, "", measure.declared.value).formula
            formulas.append(f"**{capital(column.title)}.** {formula}")
    return Explanation(f"**How to read this.** {reading}", "\n\n".join(formulas))
