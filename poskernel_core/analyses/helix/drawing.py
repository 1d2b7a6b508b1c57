"""Mean residuals over positions: the helix in its first components, and what it is made of."""

import math

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int

from poskernel_core.plotting.layout import bar_above, legend_under_title, set_title, style
from poskernel_core.plotting.palette import BLUE, CATEGORICAL, SCALE, VERMILLION, scale_hex
from poskernel_core.plotting.scene import (
    Points,
    Shares,
    add_player,
    averages,
    coloured_curve,
    component_titles,
    morph,
    plain_curve,
    scene,
)

MOST_POINTS = 512  # per frame of an animation; longer curves are thinned
_MARKS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")

PerLayer = Float[np.ndarray, " layer"]


def helix_3d(
    points: Points,
    positions: Int[np.ndarray, " pos"],
    *,
    title: str,
    groups: Float[np.ndarray, "group 3"] | None = None,
    other: Float[np.ndarray, "other_pos 3"] | None = None,
    other_name: str = "W_pos",
    name: str = "mean residual",
    shares: Shares | None = None,
) -> go.Figure:
    """One mean residual per position, projected on three components; `shares` in [0, 1].

    Alone, the curve is coloured by position; beside an `other` curve, which may have its own
    length, it is vermillion and the other blue and thin. `groups` are averages over positions.
    """
    _check_points(points, len(positions))
    for part in (part for part in (groups, other) if part is not None):
        _check_points(part, len(part))
    figure = go.Figure()
    if other is None:
        figure.add_trace(coloured_curve(points, positions, name))
    else:
        at = positions if len(other) == len(positions) else np.arange(len(other))
        figure.add_trace(plain_curve(other, at, other_name, BLUE, thin=True))
        figure.add_trace(plain_curve(points, positions, name, VERMILLION, thin=False))
    if groups is not None:
        figure.add_trace(averages(groups))
    shown = np.concatenate([part for part in (points, groups, other) if part is not None])
    scene(figure, component_titles(shares), shown)
    figure.update_layout(showlegend=len(figure.data) > 1)
    return set_title(figure, title)


def helix_frames(
    points: Float[np.ndarray, "layer pos 3"],
    positions: Int[np.ndarray, " pos"],
    *,
    title: str,
    shares: Float[np.ndarray, "layer 3"] | None = None,
) -> go.Figure:
    """The helix of every layer as an animation with a slider; the axes stay over all layers.

    One layer stands still.

    The signs of the components must agree between layers, or the morph between them is wild.
    """
    for layer in points:
        _check_points(layer, len(positions))
    _check_shares(shares, len(points))
    step = 2 ** max(0, math.ceil(math.log2(len(positions) / MOST_POINTS)))
    thin, at = points[:, ::step], positions[::step]
    titles = [
        component_titles(None if shares is None else shares[layer]) for layer in range(len(points))
    ]
    figure = go.Figure(coloured_curve(thin[0], at, "mean residual"))
    scene(figure, titles[0], points.reshape(-1, 3))
    if len(points) > 1:
        figure.frames = morph(thin, titles)
        add_player(figure, len(points))
    thinned = {1: "", 2: ", every 2nd position"}
    return set_title(figure, title + thinned.get(step, f", every {step}th position"))


def variance_bars(
    shares: Float[np.ndarray, "layer component"], *, title: str = "", most: int = 8
) -> go.Figure:
    """The first components' shares of the variance, stacked, for each layer; `shares` in [0, 1]."""
    components = min(shares.shape[1], most)
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
    figure.update_yaxes(range=[0, 100])
    return set_title(figure, title)


def angle_matrix(
    angles: Float[np.ndarray, "layer layer2"], *, title: str, labels: list[str]
) -> go.Figure:
    """Angle (degrees, 0 to 90) between the subspaces of every two layers."""
    if angles.shape != (len(labels), len(labels)):
        raise ValueError(
            f"expected {angles.shape[0]} x {angles.shape[1]} angles to be square, "
            f"with a label per row, received {len(labels)} labels"
        )
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
    figure.update_xaxes(type="category", showgrid=False, constrain="domain", constraintoward="left")
    figure.update_yaxes(
        type="category",
        showgrid=False,
        constrain="domain",
        scaleanchor="x",
        constraintoward="top",
        autorange="reversed",
    )
    return set_title(figure, title)


def layer_lines(
    values: dict[str, PerLayer],
    *,
    y_title: str,
    errors: dict[str, PerLayer] | None = None,
    title: str = "",
) -> go.Figure:
    """Each named series over the layer; `errors` are one standard error, by the same names."""
    if len({len(series) for series in values.values()}) != 1:
        raise ValueError(f"expected series of one length, received {[*map(len, values.values())]}")
    figure = go.Figure()
    for index, (name, series) in enumerate(values.items()):
        error = None if errors is None else errors.get(name)
        bars = None if error is None else {"array": error, "thickness": 1.2, "width": 3}
        colour = CATEGORICAL[index % len(CATEGORICAL)]
        figure.add_scatter(
            x=np.arange(len(series)),
            y=series,
            name=name,
            mode="lines+markers",
            error_y=bars,
            line={"color": colour, "width": 2, "dash": _DASHES[index % len(_DASHES)]},
            marker={"symbol": _MARKS[index % len(_MARKS)], "size": 8},
            hovertemplate=f"<b>{name}</b>, layer %{{x}}<br>%{{y:.4g}}<extra></extra>",
        )
    style(figure, x_title="layer", y_title=y_title)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(dtick=1 if len(next(iter(values.values()))) <= 24 else None)
    return set_title(legend_under_title(figure), title)


def _check_points(points: Points, positions: int) -> None:
    if points.ndim != 2 or points.shape[1] != 3 or len(points) != positions:
        raise ValueError(
            f"expected points [{positions} positions, 3 components], received {[*points.shape]}"
        )


def _check_shares(shares: Float[np.ndarray, "layer 3"] | None, layers: int) -> None:
    if shares is not None and shares.shape != (layers, 3):
        raise ValueError(f"expected shares [{layers} layers, 3], received {[*shares.shape]}")
