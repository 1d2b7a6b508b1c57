"""One number for every head as a heat map."""

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from poskernel_core.plotting.layout import style


def head_map(
    values: Float[np.ndarray, "layer head"],
    unit: str,
    span: tuple[float, float],
    scale: tuple[str, ...],
) -> go.Figure:
    """One number per head as a heat map."""
    cells = go.Heatmap(
        z=values,
        zmin=span[0],
        zmax=span[1],
        colorscale=scale,
        xgap=1,
        ygap=1,
        colorbar={"title": unit},
        hovertemplate="<b>L%{y}H%{x}</b>: %{z:.3f}<extra></extra>",
    )
    figure = style(go.Figure(cells), x_title="head", y_title="layer", height=420)
    figure.update_xaxes(dtick=1, showgrid=False)
    return figure.update_yaxes(dtick=1, autorange="reversed", showgrid=False)
