"""A part of an answer as a card: picture, sentence and reading, as its topic declares them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import plotly.graph_objects as go

from pages.shared.cards.card import Explanation, card
from pages.shared.cards.explained import explained
from pages.shared.cards.figure import all_of, charts
from poskernel_core.analyses.views import figures_of, view_of
from poskernel_core.common.result import Result


def show(
    name: str,
    result: Result,
    title: str = "",
    draw: Callable[[], None] | None = None,
    also: str = "",
    figures: Mapping[str, Callable[[], go.Figure]] | None = None,
    **choices: Any,
) -> None:
    """Draw a part of an answer; ``choices`` are what the page chooses of its picture.

    Several ``figures``, or those of one view, stand side by side. The other parameters are those of
    :func:`card`.
    """
    words = words_of(result)
    made = figures or figures_of(result, **choices)
    if "" in made:
        card(name, made[""], result, words, title, draw, also)
        return
    if figures is None:
        made = {f"{name}-{place}": figure for place, figure in enumerate(made.values())}
    draw = draw or partial(charts, made, square=figures is None)
    card(name, all_of(made), result, words, title, draw, also)


def words_of(result: Result) -> Explanation:
    """Return how its topic reads a part of an answer, and the meanings of what it shows."""
    view = view_of(result, "reading")
    values = [each for each in view.values if each not in result.texts] if view else ()
    return explained(result.analysis, view.reading if view else "", *values)
