"""What is drawn, read and said of how far keys are the sum of position and content."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import (
    HALF,
    capital,
    has,
    heads_at,
    heads_range,
    number_of,
    passing,
    who,
)
from poskernel_core.analyses.pictures import alike, named_lines
from poskernel_core.analyses.views import View, Views, figure_of
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.plotting.conditions import measured
from poskernel_core.plotting.layout import MUTED, legend_under_title, style
from poskernel_core.plotting.palette import BLUE, VERMILLION, hatched

PARTS = {
    "position_share": "position",
    "content_share": "content",
    "interaction_share": "the interaction of position and content",
}
LOOKS = (BLUE, ""), (VERMILLION, "/"), (MUTED, "x")
"""Colour and pattern of each part, from the bottom up."""


def _most(result: Result) -> str:
    """Say which part explains most of the keys' variance."""
    parts = [name for name in PARTS if name in result.values]
    if has(result, (), *parts):
        for name in parts:
            if (share := number_of(result, name)).passes(HALF) == "yes":
                return (
                    f"{capital(PARTS[name])} explains {share} of the variance of the keys "
                    f"of {who(result)}, more than half."
                )
        return ""
    most = max(parts, key=lambda name: int(passing(result, name, HALF)[0].sum()))
    return heads_at(result, most, f"share of key variance explained by {PARTS[most]}", HALF)


def _similar(result: Result) -> str:
    name = "content_similarity"
    if "shift" in result.coordinates:
        result = result.select(shift=int(result.coordinates["shift"][-1]))
    shift = result.chosen["shift"]
    if not has(result, (), name):
        noun = f"content similarity at a shift of {counted(shift, 'token')}"
        return heads_range(result, name, noun)
    cosine = number_of(result, name)
    if cosine.passes(0) not in ("yes", "no") or cosine.value == 0:
        return ""
    return (
        f"Moved by {counted(shift, 'token')}, the content in the keys of {who(result)} has a "
        f"cosine of {cosine} with itself (1: unchanged, 0: unrelated)."
    )


def _shares(result: Result) -> go.Figure:
    """Draw the shares of the keys' variance: position, content and interaction, per head.

    Heads that share their keys are one bar.
    """
    figure, layer = go.Figure(), result.chosen["layer"]
    groups = alike(result.values["position_share"])
    for name, look in zip(PARTS, LOOKS, strict=True):
        share, error = (part[name][[*groups]] for part in (result.values, result.errors))
        label = name.partition("_")[0]
        figure.add_bar(
            x=[*groups.values()],
            y=share,
            name=label,
            marker=hatched(*look, size=8, solidity=0.2),
            text=[measured(*pair) for pair in zip(share, error, strict=True)],
            textposition="none",
            hovertemplate=f"<b>L{layer}%{{x}}</b>, {label}<br>%{{text}}<extra></extra>",
        )
    style(figure, x_title=f"head of layer {layer}", y_title="share of the keys' variance")
    figure.update_layout(barmode="stack", bargap=0.2, legend_traceorder="normal")
    figure.update_xaxes(type="category", showgrid=False)
    figure.update_yaxes(range=[0, 1.001])
    return legend_under_title(figure)


def _similarity(result: Result) -> go.Figure:
    """Draw how similar one head's content stays when a passage moves along the context."""
    cosine, error = (part["content_similarity"] for part in (result.values, result.errors))
    names, unit = {"content_similarity": "content"}, "cosine of content at both places"
    figure = named_lines(result, names, over="shift", unit=unit)
    low = np.nanmin(np.append(cosine - np.nan_to_num(np.abs(error)), 0.0))
    return figure.update_yaxes(range=[1.05 * float(low), 1.05])


def _layer(result: Result) -> go.Figure:
    """Draw the layer whose keys depend most on position."""
    shares = np.nan_to_num(result.values["position_share"], nan=-1.0)
    return figure_of(result.select(layer=int(shares.mean(axis=1).argmax())))


VIEWS: Views = {
    "additivity": (
        View(
            "position_share content_share interaction_share [head]",
            _shares,
            "Layer {layer}: what explains the keys",
            reading="The parts of the variance of each head's keys. If keys are a sum of position "
            "and content, there is no interaction.",
        ),
        View("position_share content_share interaction_share [layer head]", _layer),
        *(View(f"{name} [...]", says=_most) for name in PARTS),
        View(
            "content_similarity [shift]",
            _similarity,
            "content similarity across positions",
            reading="How similar the keys of a passage stay, with position subtracted, when the "
            "passage is moved by so many tokens. At 1, the content part of the keys is the same "
            "wherever the passage stands: keys are a sum of position and content.",
        ),
        View("content_similarity [...]", says=_similar),
    )
}
