"""Means with errors, as text and as bars."""

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from poskernel_core.common.rounding import rounded
from poskernel_core.plotting.curves import Curve
from poskernel_core.plotting.layout import MUTED, legend_under_title, set_title, style
from poskernel_core.plotting.palette import BLUE, VERMILLION, fade


def measured(value: float, error: float) -> str:
    """Return a value rounded to its standard error, as figures write it: (−1.51 ± 0.30)×10⁻⁹."""
    return rounded(float(value), float(error)) if math.isfinite(value) else "not defined"


def mean_bars(
    names: Sequence[str],
    mean: Curve,
    error: Curve,
    *,
    title: str,
    x_title: str,
    other: Curve | None = None,
) -> go.Figure:
    """Draw a bar and its standard error per name; `other` random tokens are drawn as diamonds."""
    figure = go.Figure()
    figure.add_bar(
        x=mean,
        y=list(names),
        orientation="h",
        marker_color=fade(BLUE, 0.6),
        showlegend=False,
        error_x={"array": error, "thickness": 2, "width": 6, "color": MUTED},
        hovertemplate="<b>%{y}</b><br>%{x:.3g} ± %{error_x.array:.2g}<extra></extra>",
    )
    if other is not None:
        figure.add_scatter(
            x=other,
            y=list(names),
            mode="markers",
            name="other random tokens (mean)",
            marker={"color": VERMILLION, "symbol": "diamond", "size": 10},
            hovertemplate="<b>%{y}</b><br>others %{x:.3g}<extra></extra>",
        )
    style(figure, x_title=x_title, y_title="", height=170 + 50 * len(names))
    figure.update_layout(bargap=0.45, showlegend=other is not None)
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(rangemode="tozero")
    return set_title(legend_under_title(figure), title)
