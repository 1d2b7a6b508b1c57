"""A part of an answer as a card: picture, sentence and reading, as its topic declares them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import plotly.graph_objects as go

from pages.shared.cards.card import card
from pages.shared.cards.explained import Explanation, explained
from pages.shared.cards.figure import Make, all_of, chart, charts
from pages.shared.selection.selection import select_head
from poskernel_core.analyses.views import figure_of, figures_of, view_of
from poskernel_core.common.heads import layer_of
from poskernel_core.common.result import Result


def show(
    name: str,
    result: Result,
    title: str = "",
    draw: Callable[[], None] | None = None,
    also: str = "",
    figures: Mapping[str, Callable[[], go.Figure]] | None = None,
    above: Callable[[], Any] | None = None,
    below: Callable[[], Any] | None = None,
    column: Any = None,
    **choices: Any,
) -> None:
    """Draw a part of an answer; ``choices`` are what the page chooses of its picture.

    Several ``figures``, or those of one view, stand side by side; ``above`` and ``below`` draw what
    stands over and under them. It stands in a ``column`` of the page, if one is given. The other
    parameters are those of :func:`card`.
    """
    words = words_of(result)
    made = figures or figures_of(result, **choices)
    card_figure: Make
    if "" in made:
        card_figure, picture = made[""], partial(chart, name, made[""])
    else:
        if figures is None:
            made = {f"{name}-{number}": figure for number, figure in enumerate(made.values())}
        card_figure, picture = all_of(made), partial(charts, made, square=figures is None)
    if draw is None and ("" not in made or above or below):
        parts = [part for part in (above, picture, below) if part]
        draw = partial(_draw_all, parts)
    with column or nullcontext():
        card(name, card_figure, result, words, title, draw, also)


def _draw_all(parts: Sequence[Callable[[], Any]]) -> None:
    for part in parts:
        part()


def show_graph(name: str, result: Result, title: str) -> None:
    """Draw a part of an answer in one figure, in which a click on a head selects it."""

    def figure() -> go.Figure:
        return figure_of(result).update_layout(clickmode="event+select", dragmode="pan")

    show(name, result, title, partial(chart, name, figure, pick=pick_head))


def pick_head(names: list[str], many: bool) -> None:
    """Select the head that was clicked; other parts are no heads. A callback."""
    if layer_of(names[0]) >= 0:
        select_head(names[0])


def words_of(result: Result) -> Explanation:
    """Return how its topic reads a part of an answer, and the meanings of what it shows."""
    view = view_of(result, "reading")
    values = [name for name in view.values if name not in result.texts] if view else ()
    return explained(result.analysis, view.reading if view else "", *values)
