"""Figure of the shares of place, content, and both together."""

import plotly.graph_objects as go

from poskernel_core.common.result import Result
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.curves import curves

NAMES = {
    "place_share": "place",
    "content_share": "content",
    "both_share": "both together",
    "covariance_share": "covariance in real scores",
}


def place_and_content_figure(head: Result) -> go.Figure:
    """Draw one head's shares by query position."""
    if head.axes["place_share"] != ("query",):
        return by_axes(head)
    return curves(
        head.coordinates["query"],
        {shown: (head.values[name], head.errors[name]) for name, shown in NAMES.items()},
        x_title="query position n (tokens)",
        y_title="share of variance, all keys at all places",
        where="n = %{x}",
    )
