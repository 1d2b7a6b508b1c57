"""Figure of the score variance explained."""

import plotly.graph_objects as go

from poskernel_core.common.result import Result
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.curves import curves


def score_shares_figure(head: Result) -> go.Figure:
    """Draw one head's shares of position and content in the score variance, by query position."""
    if head.axes["position_share"] != ("query",):
        return by_axes(head)
    names = {
        "position_share": "position",
        "content_share": "content",
        "covariance_share": "twice the covariance",
    }
    return curves(
        head.coordinates["query"],
        {shown: (head.values[name], head.errors[name]) for name, shown in names.items()},
        x_title="query position n (tokens)",
        y_title="share of the score variance",
        where="n = %{x}",
    )
