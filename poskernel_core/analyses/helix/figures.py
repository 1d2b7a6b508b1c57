"""Figures of the helix, and of how heads read it."""

import math

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.helix.scene import (
    Points,
    add_player,
    averages,
    coloured_curve,
    component_titles,
    morph,
    plain_curve,
    scene,
)
from poskernel_core.common.result import Result
from poskernel_core.common.specs import BAND
from poskernel_core.plotting.curves import Look, add_by_offset, curves
from poskernel_core.plotting.layout import MUTED, bar_above, set_title, style
from poskernel_core.plotting.palette import BLUE, GREEN, PURPLE, SCALE, VERMILLION, scale_hex
from poskernel_core.plotting.scores import around_query

OVERLAYS: dict[str, tuple[str, str | None]] = {
    "nothing": ("projection", None),
    "layer 0, on its axes": ("on_embedding", "projection"),
    "layer 0, on this layer's axes": ("projection", "embedding_on_layer"),
    "layer 0, on the axes of both": ("joint", "embedding_joint"),
}
"""The value drawn for a layer, and the value drawn beside it for layer 0 (W_pos); ``projection``
is layer 0's own."""
OWN_AXES = ("nothing", "layer 0, on this layer's axes")
MAX_POINTS = 512  # per frame of an animation; longer curves are thinned
MAX_COMPONENTS = 8
HIDDEN = 2
"""How many parts of a score are hidden by default, as five lines at once are a tangle."""


def positions_figure(
    layer: Result,
    span: tuple[int, int] | None = None,
    group: int | None = None,
    overlay: str = "nothing",
    first: Result | None = None,
) -> go.Figure:
    """Draw one layer's positions from `span[0]` to `span[1]`, with group averages or W_pos.

    Alone, the curve is coloured by position; beside layer 0's blue curve it is vermillion. Group
    averages are over `group` positions. `first` is layer 0, needed if it is drawn on its own axes.
    """
    values, positions = layer.values, layer.coordinates["pos"]
    span = span or (int(positions[0]), int(positions[-1]))
    drawn = (positions >= span[0]) & (positions <= span[1])
    name, beside = OVERLAYS[overlay]
    points, at = values[name][drawn], positions[drawn]
    label, own = f"before layer {layer.chosen['layer']}", overlay in OWN_AXES
    figure, every = go.Figure(), [points]
    if beside is None:
        figure.add_trace(coloured_curve(points, at, label))
    else:
        source = layer if first is None or beside != "projection" else first
        every.append(source.values[beside][drawn])
        figure.add_trace(plain_curve(every[1], at, first_name(layer), BLUE, thin=True))
        figure.add_trace(plain_curve(points, at, label, VERMILLION, thin=False))
    groups = _groups(layer, span, group) if own else None
    if groups is not None:
        figure.add_trace(averages(groups))
        every.append(groups)
    shares = values["explained_variance"][:3] if own else None
    scene(figure, component_titles(shares), np.concatenate(every))
    return figure.update_layout(showlegend=len(figure.data) > 1)


def _groups(layer: Result, span: tuple[int, int], group: int | None) -> Points | None:
    if group is None:
        return None
    starts = layer.coordinates[f"group_of_{group}"]
    inside = (starts >= span[0]) & (starts + group - 1 <= span[1])
    return layer.values[f"group_{group}"][inside] if inside.any() else None


def first_name(helix: Result) -> str:
    """Return the name of layer 0's content: W_pos, or its mean stream."""
    return "W_pos" if helix.params["prompts"] == "repeated" else "the stream before layer 0"


def morph_figure(helix: Result) -> go.Figure:
    """Draw every layer's positions as an animation, each layer in units of its own size.

    The axes are the same for all layers; a single layer is not animated. The signs of the
    components must agree between layers, or the morph is erratic.
    """
    points, positions = helix.values["projection"], helix.coordinates["pos"]
    size = np.sqrt(np.square(points).sum(axis=2).mean(axis=1))
    points = points / np.where(size > 0, size, 1.0)[:, None, None]
    step = 2 ** max(0, math.ceil(math.log2(len(positions) / MAX_POINTS)))
    thin = points[:, ::step]
    shares = helix.values.get("explained_variance", [None] * len(points))
    titles = [component_titles(None if share is None else share[:3]) for share in shares]
    figure = go.Figure(coloured_curve(thin[0], positions[::step], "mean residual"))
    scene(figure, titles[0], points.reshape(-1, 3))
    if len(points) > 1:
        figure.frames = morph(thin, titles)
        add_player(figure, len(points))
    thinned = {1: "", 2: ", every 2nd position"}.get(step, f", every {step}th position")
    return set_title(figure, f"From layer to layer{thinned}")


def variance_figure(helix: Result) -> go.Figure:
    """Draw the first components' shares of the variance, stacked, for each layer."""
    shares = helix.values["explained_variance"]
    components = min(shares.shape[1], MAX_COMPONENTS)
    colours = scale_hex(np.linspace(0.22, 0.95, components)[None])[0]
    layer, total = np.arange(len(shares)), np.cumsum(shares, axis=1)
    figure = go.Figure()
    for component, colour in enumerate(colours):
        figure.add_bar(
            x=layer,
            y=100 * shares[:, component],
            name=f"component {component + 1}",
            customdata=100 * total[:, component],
            marker={"color": colour, "line_width": 0},
            hovertemplate=f"<b>layer %{{x}}, component {component + 1}</b><br>%{{y:.1f}} %"
            f"<br>first {component + 1} together %{{customdata:.1f}} %<extra></extra>",
        )
    style(figure, x_title="layer", y_title="share of the variance (%)")
    figure.update_layout(
        barmode="stack",
        bargap=0.25,
        legend={"orientation": "v", "x": 1.01, "y": 1, "yanchor": "top", "traceorder": "reversed"},
    )
    figure.update_xaxes(showgrid=False, dtick=1 if len(shares) <= 24 else None)
    return figure.update_yaxes(range=[0, 100])


def angles_figure(helix: Result, name: str) -> go.Figure:
    """Draw the largest canonical angle (degrees, 0 to 90) between every two layers."""
    angles = helix.values[name].max(axis=-1)
    labels = [f"{layer}" for layer in range(len(angles))]
    if name == "angles_position" and helix.provenance["position_scheme"] == "learned":
        labels[0] = "W_pos"
    cells = go.Heatmap(
        z=angles,
        x=labels,
        y=labels,
        zmin=0,
        zmax=90,
        colorscale=SCALE,
        hoverongaps=False,
        xgap=1,
        ygap=1,
        texttemplate="%{z:.0f}" if len(labels) <= 16 else None,
        hovertemplate="layer %{y} and layer %{x}: <b>%{z:.1f}°</b><extra></extra>",
    )
    figure = style(go.Figure(cells), x_title="layer", y_title="layer", height=520)
    ticks = [*range(0, 91, 30)]
    bar_above(figure, "angle (°)", ticks, [f"{tick}" for tick in ticks])
    figure.update_traces(colorbar_len=150)  # two of these figures stand beside each other
    look = {"type": "category", "showgrid": False, "constrain": "domain"}
    figure.update_xaxes(**look, constraintoward="left")
    return figure.update_yaxes(**look, constraintoward="top", scaleanchor="x", autorange="reversed")


def shape_figure(helix: Result) -> go.Figure:
    """Draw how sparse each layer's mean residuals are, and how far prompts spread around them."""
    spread = "the tokens repeated" if helix.params["prompts"] == "repeated" else "texts"
    far, around = helix.values["far_share"], helix.values["token_spread"]
    lines = {
        f"far from 0 (beyond {helix.params['far']:g} × rms)": (far, None),
        f"spread over {spread}": (around, None),
    }
    figure = curves(
        np.arange(len(far)),
        lines,
        x_title="layer",
        y_title="share (0 to 1) or relative size",
        where="layer %{x}",
    )
    return figure.update_xaxes(dtick=1 if len(far) <= 24 else None)


def tangents_figure(head: Result, reach: int = BAND) -> go.Figure:
    """Draw one head's position-only score around the query, split along the helix.

    The score is the sum of its tangent, its radial part and the rest. Each is drawn relative to its
    own mean over the band. The radial part and the rest are hidden until their names in the legend
    are clicked, unless they vary more than the tangent part does.
    """
    drawn = np.abs(head.coordinates["band"]) <= reach
    offsets = head.coordinates["band"][drawn]
    values = {name: value[drawn] for name, value in head.values.items() if value.ndim}
    rest = values["rest"] + values["third_part"]
    parts = (
        ("third direction and rest", rest, PURPLE, "dot", "triangle-up"),
        ("radial part", values["radial_part"], GREEN, "dashdot", "diamond"),
        ("tangent part", values["tangent_part"], VERMILLION, "dash", "square"),
        ("position only", values["position_score"], BLUE, "solid", "circle"),
        ("raw score in texts", values["observed_score"], MUTED, "solid", "circle-open"),
    )
    figure = go.Figure()
    rows = {name: (part - np.nanmean(part), None) for name, part, *_ in parts}
    tangent = _span(values["tangent_part"])
    hidden = [name for name, part, *_ in parts[:HIDDEN] if _span(part) <= tangent]
    add_by_offset(figure, offsets, rows, [Look(*look) for _, _, *look in parts], hidden=hidden)
    around_query(figure, offsets)
    figure.update_layout(hovermode="x unified", legend_traceorder="reversed")
    return figure


def _span(part: np.ndarray) -> float:
    return float(np.nanmax(part) - np.nanmin(part))
