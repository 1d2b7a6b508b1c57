"""Figures that show how far keys are the sum of a position part and a content part."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.conditions import measured
from poskernel_core.plotting.curves import curves
from poskernel_core.plotting.layout import MUTED, legend_under_title, set_title, style
from poskernel_core.plotting.palette import BLUE, VERMILLION, hatched
from poskernel_core.plotting.parts import part

SHARES = {
    "position_share": ("position", BLUE, ""),
    "content_share": ("content", VERMILLION, "/"),
    "interaction_share": ("interaction", MUTED, "x"),
}
"""Name, colour and pattern of each share, from the bottom up."""


def shares_figure(found: Result, layer: int) -> go.Figure:
    """Draw the shares of the keys' variance: position, content and interaction, per head."""
    figure = go.Figure()
    for name, (label, colour, pattern) in SHARES.items():
        share, error = part(found, name, layer=layer)
        cells = [f"H{head}" for head in range(len(share))]
        figure.add_bar(
            x=cells,
            y=share,
            name=label,
            marker=hatched(colour, pattern, size=8, solidity=0.2),
            text=[measured(*pair) for pair in zip(share, error, strict=True)],
            textposition="none",
            hovertemplate=f"<b>L{layer}%{{x}}</b>, {label}<br>%{{text}}<extra></extra>",
        )
    style(figure, x_title=f"head of layer {layer}", y_title="share of the keys' variance")
    figure.update_layout(barmode="stack", bargap=0.2, legend_traceorder="normal")
    figure.update_xaxes(type="category", showgrid=False)
    figure.update_yaxes(range=[0, 1.001])
    return set_title(legend_under_title(figure), f"Layer {layer}: what explains the keys")


def similarity_figure(found: Result, layer: int, head: int) -> go.Figure:
    """Draw how similar one head's content stays when a passage moves along the context."""
    cosine, error = part(found, "content_similarity", layer=layer, head=head)
    figure = curves(
        found.coordinates["shift"],
        {"content": (cosine, error)},
        x_title="shift (tokens)",
        y_title="cosine of content at both places",
        where="shift %{x}",
    )
    low = np.nanmin(np.append(cosine - np.nan_to_num(np.abs(error)), 0.0))
    figure.update_yaxes(range=[1.05 * float(low), 1.05])
    return set_title(figure, f"{head_name(layer, head)}: content similarity across positions")


def additivity_figure(found: Result) -> go.Figure:
    """Draw the layer with most dependence on position, or a selected head's content similarity."""
    if "layer" not in found.axes["content_similarity"]:
        return by_axes(found.only("content_similarity"))
    shares = np.nan_to_num(found.values["position_share"], nan=-1.0)
    return shares_figure(found, int(shares.mean(axis=1).argmax()))
