"""Where the heads stand: on two measures, or near heads with near kernels; and by what columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pages.shared.cards.explained import Explanation, explained
from pages.shared.cards.plain import capital, plain
from pages.shared.choices.fit import fitted_index
from pages.shared.grid.measures import MEASURES
from pages.shared.jobs import results
from pages.shared.jobs.pressed import fetch_when_asked
from pages.shared.selection.selection import Selection
from poskernel_core.analyses.base import QueryParams
from poskernel_core.analyses.how_many_texts.spec import HowManyTexts
from poskernel_core.analyses.how_many_texts.views import largest_influence
from poskernel_core.analyses.kernels.kernel import KernelParams, PositionalKernel
from poskernel_core.analyses.kernels.near import NearKernels
from poskernel_core.analyses.place_and_content.spec import PlaceAndContent, PlaceAndContentParams
from poskernel_core.common.result import Result
from poskernel_core.models.geometry import Geometry
from poskernel_core.plotting.head_scatter import Column
from poskernel_core.plotting.sparklines import as_blocks, compact_curves, heights_of

BY_MEASURES, KERNELS, PLACES = "two measures", "near kernels", "place and content"
LABELS: Final = {"x": "Across", "y": "Upwards", "colour": "Colour"}
FIRST: Final = {"x": "effective token count", "y": "attention entropy", "colour": "attention sink"}


def our_columns(result: Result) -> dict[str, Column]:
    """Return the measures of a model by title."""
    columns = {}
    for place, title in enumerate(result.words("measure")):
        kinds = tuple(kind for kind in result.texts["kinds"][place] if kind)
        columns[title] = Column(
            title,
            str(result.texts["unit"][place]) if not kinds else "",
            result.values["value"][place],
            None
            if np.isnan(result.errors["value"][place]).all()
            else result.errors["value"][place],
            MEASURES[title].declared.scale,
            kinds,
        )
    return columns


def choose_columns(columns: dict[str, Column], places: Sequence[Any], *keys: str) -> list[Column]:
    """Draw the choice of axes and colour, by their keys in the address; return the columns."""
    numbers = [name for name, column in columns.items() if not column.labels]

    def choose(place: Any, key: str) -> Column:
        offered = list(columns) if key == "colour" else numbers
        first = FIRST[key] if FIRST[key] in offered else offered[0]
        return columns[place.selectbox(LABELS[key], **fitted_index(key, offered, first))]

    return [choose(place, key) for place, key in zip(places, keys, strict=False)]


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
        named = "; ".join(
            f"{plain(external.title)} from {plain(external.source)}" for external in theirs
        )
        reading += f" From other sources, unchanged: {named}."
    formulas = [formula] if formula else []
    for column in distinct.values():
        if not column.source:
            measure = MEASURES[column.title]
            formula = explained(measure.question.name, "", measure.declared.value).formula
            formulas.append(f"**{capital(column.title)}.** {formula}")
    return Explanation(f"**How to read this.** {reading}", "\n\n".join(formulas))


def deciding_columns(selection: Selection, columns: Sequence[Column]) -> list[Column]:
    """Return how much of the error of each measure one group of texts makes, once that is there."""
    decided = []
    for column in columns:
        params = None if column.source else MEASURES[column.title].of_texts(selection)
        if params and (result := results.fetch(HowManyTexts, selection.run, params)):
            title = f"{column.title}: one group of texts"
            decided.append(Column(title, "share", largest_influence(result), scale="unit"))
    return decided


def arrangements(geometry: Geometry) -> list[str]:
    """Return the arrangements that a model has; place and content need a rotation."""
    rotary = geometry.scheme == PlaceAndContent.scheme
    return [BY_MEASURES, KERNELS, *([PLACES] if rotary else [])]


@dataclass(frozen=True, eq=False)
class Arranged:
    """All heads as points.

    Attributes:
        x, y, colour: their places and colours.
        hover_columns: what their hover texts say; the first columns of the table.
        result: the result that the places come from.
        heading: the title.
        words: how to read the points.
        one_scale: whether a distance means the same in all directions.
    """

    x: Column
    y: Column
    colour: Column
    hover_columns: Sequence[Column]
    result: Result
    heading: str
    words: Explanation
    one_scale: bool = False


def by_measures(result: Result, columns: dict[str, Column], places: Sequence[Any]) -> Arranged:
    """Draw the choice of two measures and of the colour; return the heads on them."""
    x, y, colour = three = choose_columns(columns, places, "x", "y", "colour")
    reading = (
        "its values with their standard errors. Look for points far from the others, and for "
        "groups: one measure alone does not define a kind of head."
    )
    hover_columns = list({column.heading: column for column in three}.values())
    return Arranged(
        x, y, colour, hover_columns, result, f"{y.title} against {x.title}", words(reading, three)
    )


def by_kernels(
    selection: Selection, columns: dict[str, Column], places: Sequence[Any]
) -> Arranged | None:
    """Draw the choice of the colour; return the heads by their kernels, None until they are there.

    The kernels are those that the places come from, so they are there as well.
    """
    (colour,) = choose_columns(columns, places, "colour")
    query, skip = selection.query, selection.skip
    result = results.fetch(NearKernels, selection.run, QueryParams(query=query, skip=skip))
    if result is None:
        return None
    kernels = results.fetch(PositionalKernel, selection.run, KernelParams(query=query, skip=skip))
    if kernels is None:
        return None
    x, y = (
        Column(f"component {place}", result.units["place"], result.values["place"][..., place])
        for place in range(2)
    )
    reading = (
        "its kernel, from the query's own key at the left to the farthest key at the right, on a "
        "log scale and scaled to its largest value. Heads near each other have near kernels, as "
        "far as a plane can show it: look for groups, and for heads between them. The axes have no "
        "meaning of their own."
    )
    method = explained(result.analysis, "", "place", "stress").formula
    return Arranged(
        x,
        y,
        colour,
        [_curves(kernels, selection), colour],
        result,
        "Heads with near kernels",
        words(reading, [colour], method),
        one_scale=True,
    )


def by_places(
    selection: Selection, columns: dict[str, Column], places: Sequence[Any]
) -> Arranged | None:
    """Draw the choice of the colour; return the heads by their shares of place and content."""
    (colour,) = choose_columns(columns, places, "colour")
    params = PlaceAndContentParams(skip=selection.skip)
    result = fetch_when_asked(PlaceAndContent, selection.run, params, "compute-places", "heads")
    if result is None:
        return None
    one = result.select(query=selection.query)
    x, y, both = (
        Column(
            measure.title,
            measure.unit,
            one.values[measure.value],
            one.errors.get(measure.value),
            measure.scale,
        )
        for measure in PlaceAndContent.measures
    )
    reading = (
        "its shares with their standard errors. At the right place decides the scores "
        "(positional), at the top content does (symbolic). On the line from top left to bottom "
        "right the two simply add up; the farther below it, the more depends on both together."
    )
    method = explained(result.analysis, "", *one.values).formula
    return Arranged(
        x,
        y,
        colour,
        [x, y, both, colour],
        one,
        f"Place and content at n = {selection.query}",
        words(reading, [colour], method),
    )


def _curves(kernels: Result, selection: Selection) -> Column:
    """Return every head's kernel as a line of blocks."""
    heights = heights_of(compact_curves(kernels.values["kernel"], selection.query, selection.skip))
    there = np.isfinite(heights).all(axis=-1)
    place = np.where(there, there.cumsum().reshape(there.shape) - 1.0, -1.0)
    return Column("kernel", "", place, labels=tuple(map(as_blocks, heights[there])))
