"""Attention in conversations as figures."""

import plotly.graph_objects as go

from poskernel_core.common.result import Result
from poskernel_core.plotting.head_map import share_map
from poskernel_core.plotting.layout import SHARE, legend_under_title, set_title, style
from poskernel_core.plotting.palette import CATEGORICAL, fade


def conversation_figure(result: Result) -> go.Figure:
    """Draw a head's attention by class as stacked bars, or of all heads that to the template."""
    if len(result.axes.get("attention", ())) != 2:
        told = "%{z:.3f} of the attention of what is said"
        title = "Attention to the chat template, the first key left out"
        return share_map(result.values["template_share"], told=told, title=title)
    figure, queries = go.Figure(), result.words("query_classes")
    for place, name in enumerate(result.words("key_classes")):
        figure.add_bar(
            x=result.values["attention"][:, place],
            y=queries,
            orientation="h",
            name=f"to {name}",
            marker_color=fade(CATEGORICAL[place % len(CATEGORICAL)], 0.7),
            customdata=result.errors["attention"][:, place]
            if "attention" in result.errors
            else None,
            hovertemplate=f"from %{{y}} to {name}: %{{x:.3f}}<extra></extra>",
        )
    style(figure, x_title=SHARE, y_title="queries", height=320)
    figure.update_layout(barmode="stack").update_yaxes(autorange="reversed", showgrid=False)
    return set_title(legend_under_title(figure), "Attention in conversations, by class of token")
