"""One number for every head as a heat map."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from poskernel_core.plotting.layout import SHARE, bar_above, set_title, style
from poskernel_core.plotting.palette import SCALE


def head_map(
    values: Float[np.ndarray, "layer head"], *, told: str, height: int = 420, **cells: Any
) -> go.Figure:
    """Draw one number per head; `told` is the hover text, `cells` are further Plotly options."""
    cells = {"colorscale": SCALE, "xgap": 1, "ygap": 1} | cells
    hover = f"<b>L%{{y}}H%{{x}}</b>{told}<extra></extra>"
    figure = go.Figure(go.Heatmap(z=values, hovertemplate=hover, **cells))
    style(figure, x_title="head", y_title="layer", height=height)
    figure.update_xaxes(dtick=1, showgrid=False)
    return figure.update_yaxes(dtick=1, autorange="reversed", showgrid=False)


def share_map(
    shares: Float[np.ndarray, "layer head"], *, told: str, title: str, **cells: Any
) -> go.Figure:
    """Draw one share of attention per head, from 0 to the largest, with a colour bar above."""
    layers, heads = shares.shape
    top, height = max(float(np.nanmax(shares)), 1e-3), min(190 + 34 * layers, 900)
    figure = head_map(shares, told=f"<br>{told}", height=height, zmin=0, zmax=top, **cells)
    figure.update_xaxes(dtick=1 if heads <= 16 else 4)
    figure.update_yaxes(dtick=1 if layers <= 16 else 4)
    return set_title(share_bar(figure, top), title)


def share_bar(figure: go.Figure, top: float) -> go.Figure:
    """Add a colour bar of shares of attention above a map, from 0 to `top`."""
    ticks = np.linspace(0, top, 5).tolist()
    return bar_above(figure, SHARE, ticks, [f"{tick:.2g}" for tick in ticks])
