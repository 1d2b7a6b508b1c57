"""Kernel, observed attention and their difference, side by side in one card."""

from collections.abc import Callable
from functools import partial

import plotly.graph_objects as go

from pages.shared.cards.card import Explanation, card
from pages.shared.cards.figure import charts
from poskernel_core.analyses.kernels.panels import panels
from poskernel_core.common.result import Result


def draw_three(
    kind: str, title: str, result: Result, words: Explanation, panel: Callable[..., go.Figure]
) -> None:
    """Draw the panels of a result side by side; ``panel`` draws one of them."""
    figures = {f"{kind}-{each}": partial(panel, panel=each) for each in panels(result)}

    def all_of_them() -> list[go.Figure]:
        return [each() for each in figures.values()]

    card(kind, all_of_them, result, words, title, partial(charts, figures, square=True))
