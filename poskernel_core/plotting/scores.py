"""Raw scores around the query: the past to the right, the masked future shaded on the left."""

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Int

from poskernel_core.plotting.layout import LINE, MASKED, legend_under_title, style


def around_query(figure: go.Figure, offsets: Int[np.ndarray, " band"]) -> go.Figure:
    """Set axes for scores over `offsets` k = n - i, in place; those below 0 are future keys."""
    style(
        figure,
        x_title="offset k = n − i (tokens), future keys < 0",
        y_title="score − its mean (natural log of attention)",
        height=420,
    )
    first, last = float(offsets.min()), float(offsets.max())
    pad = 0.02 * (last - first)
    figure.update_xaxes(range=[first - pad, last + pad])
    figure.add_vline(x=0, line={"color": LINE, "width": 1.5, "dash": "dot"})
    if first < 0:
        edge = first - pad
        figure.add_vrect(x0=edge, x1=-0.5, fillcolor=MASKED, line_width=0, layer="below")
        figure.add_annotation(
            text="future, masked",
            x=(edge - 0.5) / 2,
            y=0,
            yref="paper",
            yanchor="bottom",
            showarrow=False,
            font_size=12,
        )
    return legend_under_title(figure)
