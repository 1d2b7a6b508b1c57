"""A measure of all heads as a heat map, for download: the colours of the grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from pages.parts.figures.layout import style
from poskernel_core.analyses.base import Result

if TYPE_CHECKING:
    from pages.parts.measures import Measure

__all__ = ["measure_figure"]


def measure_figure(measure: Measure, found: Result) -> go.Figure:
    """One cell per head ``[layer, head]`` in the grid's colours, the value on hover."""
    values = measure.numbers(found)
    shade = measure.shade(found, values)
    codes = np.arange(values.size).reshape(values.shape)
    flat = [colour for row in shade.colours for colour in row]
    most = max(1, values.size - 1)
    scale = [[place / most, colour] for place, colour in enumerate(flat)]
    words = found.text_of(measure.value)
    figure = go.Figure(
        go.Heatmap(
            z=codes, colorscale=scale if len(scale) > 1 else [[0, flat[0]], [1, flat[0]]],
            showscale=False, xgap=1, ygap=1, customdata=np.array(words, dtype=object),
            hovertemplate="<b>L%{y}H%{x}</b><br>" + measure.title + " %{customdata}<extra></extra>",
        )
    )  # fmt: skip
    named = [(i, colour, label) for i, (colour, label) in enumerate(shade.legend) if label]
    for _, colour, label in named:
        figure.add_scatter(
            x=[None], y=[None], mode="markers", name=label,
            marker={"color": colour, "symbol": "square", "size": 12},
        )  # fmt: skip
    style(figure, x_title="head", y_title="layer", height=420)
    figure.update_layout(legend_title_text=measure.unit)
    figure.update_xaxes(dtick=1, showgrid=False)
    return figure.update_yaxes(dtick=1, autorange="reversed", showgrid=False)
