"""The columns by which heads are drawn: our measures, and those of readers' tables."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import streamlit as st

from pages.shared.cards.explained import Explanation, explained
from pages.shared.cards.plain import capital, plain
from pages.shared.choices.fit import fitted_index
from pages.shared.grid.measures import MEASURES
from poskernel_core.common.result import Result
from poskernel_core.plotting.head_scatter import Column

LABELS: Final = {"x": "Across", "y": "Upwards", "colour": "Colour"}
FIRST: Final = {"x": "effective token count", "y": "attention entropy", "colour": "attention sink"}


def our_columns(found: Result) -> dict[str, Column]:
    """Return the measures of a model by title."""
    columns = {}
    for place, title in enumerate(found.words("measure")):
        kinds = tuple(kind for kind in found.texts["kinds"][place] if kind)
        columns[title] = Column(
            title,
            str(found.texts["unit"][place]) if not kinds else "",
            found.values["value"][place],
            None if np.isnan(found.errors["value"][place]).all() else found.errors["value"][place],
            MEASURES[title].declared.scale,
            kinds,
        )
    return columns


def choose_columns(columns: dict[str, Column], *keys: str) -> list[Column]:
    """Draw the choice of axes and colour, by their keys in the address; return the columns."""
    numbers = [name for name, column in columns.items() if not column.labels]

    def choose(place: Any, key: str) -> Column:
        offered = list(columns) if key == "colour" else numbers
        first = FIRST[key] if FIRST[key] in offered else offered[0]
        return columns[place.selectbox(LABELS[key], **fitted_index(key, offered, first))]

    return [choose(place, key) for place, key in zip(st.columns(len(LABELS)), keys, strict=False)]


def words(reading: str, columns: Sequence[Column], formula: str = "") -> Explanation:
    """Return how to read the points, and the formulas of our measures among the columns.

    ``formula`` stands before them.
    """
    reading = (
        f"One point per head; hover for its name and {reading} The large ring marks the selected "
        "head, small rings the chosen ones."
    )
    distinct = {column.heading: column for column in columns}
    theirs = [column for column in distinct.values() if column.source]
    if theirs:
        named = "; ".join(f"{plain(each.title)} from {plain(each.source)}" for each in theirs)
        reading += f" From other sources, unchanged: {named}."
    formulas = [formula] if formula else []
    for column in distinct.values():
        if not column.source:
            measure = MEASURES[column.title]
            formula = explained(measure.question.name, "", measure.declared.value).formula
            formulas.append(f"**{capital(column.title)}.** {formula}")
    return Explanation(f"**How to read this.** {reading}", "\n\n".join(formulas))
