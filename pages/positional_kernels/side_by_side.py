"""Kernel, observed attention and their difference, side by side in one card."""

from collections.abc import Callable

import numpy as np
import plotly.graph_objects as go

from pages.shared.cards.card import Explanation, card, charts
from poskernel_core.common.result import Result
from poskernel_core.plotting.layout import THIRD, set_height
from poskernel_core.plotting.maps import Colours, difference_colours, probability_colours

PANELS = ("kernel", "observed", "difference")
Make = Callable[[dict[str, np.ndarray]], list[go.Figure]]


def draw_three(kind: str, title: str, result: Result, words: Explanation, make: Make) -> None:
    """Draw kernel, observed attention and their difference side by side, in one card."""
    kernel, observed = result.values["kernel"], result.values.get("observed")
    found = {"Kernel": kernel}
    if observed is not None:
        found |= {"Observed attention": observed, "Kernel − observed": kernel - observed}

    def figures() -> list[go.Figure]:
        return make(found)

    def draw() -> None:
        drawn = zip(PANELS, figures(), strict=False)
        charts({f"{kind}-{name}": set_height(each, THIRD) for name, each in drawn}, square=True)

    shown = result.only(*(name for name in PANELS if name in result.values))
    card(kind, figures, shown, words, title, draw)


def coloured(found: dict[str, np.ndarray]) -> list[tuple[str, np.ndarray, Colours]]:
    """Add colours: one scale for the probabilities, one around 0 for their difference."""
    probabilities = [*found.values()][:2]
    scale = probability_colours(*probabilities)
    return [
        (name, each, scale if place < 2 else difference_colours(each, *probabilities))
        for place, (name, each) in enumerate(found.items())
    ]
