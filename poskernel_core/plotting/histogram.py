"""Histograms, and ranges of logarithmic axes."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from poskernel_core.plotting.layout import MUTED, log_axis, log_ticks, style
from poskernel_core.plotting.palette import BLUE, RED, fade

Values = Float[np.ndarray, " value"]
Span = tuple[float, float]
BINS = 80
RING = {"symbol": "circle-open", "size": 20, "color": RED, "line_width": 2.5}


def log_span(values: Float[np.ndarray, "*shape"], limit: float = 0.0) -> Span:
    """Return the ends of a log axis that spans the positive values, and `limit` if positive."""
    positive = np.append(values[np.isfinite(values) & (values > 0)], [limit] if limit > 0 else [])
    low, high = (float(positive.min()), float(positive.max())) if len(positive) else (0.1, 1.0)
    pad = max(1.6, (high / low) ** 0.07)
    return low / pad, high * pad


def log_range(span: Span) -> dict[str, Any]:
    """Return Plotly options of a log axis from `span[0]` to `span[1]`."""
    return log_axis(*span) | {"range": [math.log10(end) for end in span]}


def histogram(values: Values, unit: str) -> go.Figure:
    """Draw how many tokens (log scale) are in each bin; bins have round widths and begin at 0."""
    finite = values[np.isfinite(values)].astype(float)
    reach = (float(np.ptp(finite)) if len(finite) else 0.0) or 1.0
    step = log_ticks(reach / BINS, 11 * reach / BINS)[0]
    place, count = np.unique(np.floor(finite / step), return_counts=True)
    figure = go.Figure(
        go.Bar(
            x=(place + 0.5) * step,
            y=count,
            width=step,
            marker_color=fade(BLUE, 0.7),
            marker_line_width=0,
            customdata=np.stack([place * step, (place + 1) * step], axis=-1),
            hovertemplate="%{customdata[0]:.3g} to %{customdata[1]:.3g} "
            f"{unit}<br>tokens: <b>%{{y}}</b><extra></extra>",
        )
    )
    style(figure, x_title=unit, y_title="tokens (count, log scale)")
    figure.add_vline(x=0, line={"color": MUTED, "width": 1.5, "dash": "dash"})
    top = max(float(count.max()) if len(count) else 1.0, 2.0)
    figure.update_yaxes(**log_range((0.5, top * 1.6)))
    return figure.update_layout(showlegend=False)


def add_ring(
    figure: go.Figure,
    x: Sequence[Any] | np.ndarray,
    y: Sequence[Any] | np.ndarray,
    label: str,
    side: str,
    **more: Any,
) -> None:
    """Draw a ring around one point, with its name on one side."""
    figure.add_scatter(
        x=x,
        y=y,
        mode="markers+text",
        text=[f"<b>{label}</b>"],
        textposition=f"middle {side}",
        marker=RING,
        showlegend=False,
        hoverinfo="skip",
        name="chosen",
        **more,
    )
