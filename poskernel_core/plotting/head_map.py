"""One number for every head as a heat map."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Bool, Float, Shaped

from poskernel_core.plotting.layout import SHARE, bar_above, set_title, style
from poskernel_core.plotting.palette import DIVERGING, NO_VALUE, SCALE


def head_map(
    values: Float[np.ndarray, "layer head"], *, hover_text: str, height: int = 420, **cells: Any
) -> go.Figure:
    """Draw one number per head; `hover_text` is the hover text, `cells` are further Plotly options.

    Heads without a value are hatched.
    """
    cells = {"colorscale": SCALE, "xgap": 1, "ygap": 1} | cells
    hover = f"<b>L%{{y}}H%{{x}}</b>{hover_text}<extra></extra>"
    figure = go.Figure(go.Heatmap(z=values, hovertemplate=hover, **cells))
    names = [[f"L{i}H{j}" for j in range(values.shape[1])] for i in range(len(values))]
    add_missing(figure, np.isnan(values), np.array(names, dtype=object))
    style(figure, x_title="head", y_title="layer", height=height)
    rows, columns = values.shape
    figure.update_xaxes(dtick=1 if columns <= 16 else 4, showgrid=False)
    return figure.update_yaxes(dtick=1 if rows <= 16 else 4, autorange="reversed", showgrid=False)


def effect_map(
    effects: Float[np.ndarray, "layer head"], *, least: float, unit: str, **cells: Any
) -> go.Figure:
    """Draw one effect per head, on a scale around 0 that reaches `least` or more on both sides."""
    reach = max(least, float(np.nanmax(np.abs(effects), initial=0)))
    cells |= {"zmin": -reach, "zmax": reach, "colorscale": DIVERGING, "colorbar": {"title": unit}}
    return head_map(effects, **cells)


def add_missing(
    figure: go.Figure,
    missing: Bool[np.ndarray, "row column"],
    names: Shaped[np.ndarray, "row column"],
) -> None:
    """Add a hatched bar over each missing cell: heat maps have no pattern, but bars have."""
    row, column = np.nonzero(missing)
    if not len(row):
        return
    figure.add_bar(
        x=column,
        y=np.ones(len(column)),
        base=row - 0.5,
        width=1,
        showlegend=False,
        customdata=names[missing],
        marker={"color": NO_VALUE, "line_width": 0, "pattern": {"shape": "/", "fgcolor": "#fff"}},
        hovertemplate="<b>%{customdata}</b><br>no value<extra></extra>",
    )


def share_map(
    shares: Float[np.ndarray, "layer head"],
    *,
    hover_text: str,
    title: str,
    unit: str = SHARE,
    **cells: Any,
) -> go.Figure:
    """Draw one share per head, from 0 to the largest, with a colour bar above."""
    layers = len(shares)
    top, height = max(float(np.nanmax(shares)), 1e-3), min(190 + 34 * layers, 900)
    figure = head_map(
        shares, hover_text=f"<br>{hover_text}", height=height, zmin=0, zmax=top, **cells
    )
    return set_title(share_bar(figure, top, unit), title)


def share_bar(figure: go.Figure, top: float, unit: str = SHARE) -> go.Figure:
    """Add a colour bar of shares above a map, from 0 to `top`."""
    ticks = np.linspace(0, top, 5).tolist()
    return bar_above(figure, unit, ticks, [f"{tick:.2g}" for tick in ticks])
