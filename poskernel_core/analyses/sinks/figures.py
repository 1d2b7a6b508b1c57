"""Attention to the first position as a figure."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.common.result import Result
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.curves import curves
from poskernel_core.plotting.layout import BARE


def sinks_figure(head: Result) -> go.Figure:
    """Draw one head's mean attention to each of the first keys, or generic curves of many heads."""
    if head.axes["alpha"] != ("key",):
        return by_axes(head)
    alpha = head.values["alpha"]
    figure = curves(
        np.arange(len(alpha)),
        {"mean attention": (alpha, head.errors["alpha"])},
        x_title="key position (tokens)",
        y_title="mean attention to it (share)",
        where="key %{x}",
    )
    return (
        figure.update_layout(margin_t=BARE).update_yaxes(rangemode="tozero").update_xaxes(dtick=1)
    )
