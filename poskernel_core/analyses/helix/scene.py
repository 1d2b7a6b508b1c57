"""Curves in three dimensions: scene, axes, and the animation from layer to layer."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int

from poskernel_core.plotting.layout import LINE, MUTED
from poskernel_core.plotting.palette import GREEN, scale_hex

BETWEEN = 2  # frames drawn between two layers, so that the curve morphs
_CAMERA = {"eye": {"x": 1.55, "y": 1.4, "z": 0.8}, "center": {"x": 0, "y": 0, "z": -0.16}}
_ABOVE_BAR = 0.12  # share of the height that is left below the scene, for the colour bar
_THIN = 0.4  # a side shorter than this share of the longest is drawn that long, not to scale
# Without plasma's ends, one of which is hard to see on each theme, light or dark.
_CURVE = scale_hex(np.linspace(0.16, 0.92, 9)[None])[0]
# WebGL adds a colour to the page as if premultiplied by its opacity; this is faint on both themes.
_GRID = "rgba(36,36,36,0.29)"
_HOVER = "<br>(%{x:.3g}, %{y:.3g}, %{z:.3g})<extra></extra>"

Points = Float[np.ndarray, "pos 3"]
Shares = Float[np.ndarray, " 3"]
Positions = Int[np.ndarray, " pos"]


def coloured_curve(points: Points, positions: Positions, name: str) -> go.Scatter3d:
    """Draw a curve coloured by position (tokens), with its colour bar."""
    ink = {"color": MUTED}
    colours = {"color": positions, "colorscale": _CURVE}
    bar = {
        "title": {"text": "position (tokens)", "side": "top", "font": ink},
        "tickfont": ink,
        "orientation": "h",
        "x": 0,
        "xanchor": "left",
        "y": 0,
        "yanchor": "bottom",
        "lenmode": "pixels",
        "len": 230,
        "thickness": 12,
        "outlinewidth": 0,
    }
    dots = {**colours, "size": 2.6, "colorbar": bar, "line": {"width": 0}}
    curve = _curve(points, positions, name, {**colours, "width": 3}, dots)
    return curve.update(showlegend=False)


def plain_curve(
    points: Points, positions: Positions, name: str, colour: str, *, thin: bool
) -> go.Scatter3d:
    """Draw a curve of one colour; a thin curve has no markers, so it differs in grey print too."""
    line = {"color": colour, "width": 2.5 if thin else 4}
    curve = _curve(points, positions, name, line, {"color": colour, "size": 3})
    return curve.update(mode="lines" if thin else "lines+markers")


def averages(groups: Float[np.ndarray, "group 3"]) -> go.Scatter3d:
    """Draw a large outlined marker per group of positions."""
    edge = {"color": "white", "width": 1}
    return go.Scatter3d(
        **_xyz(groups),
        mode="markers",
        name="group averages",
        customdata=np.arange(len(groups)),
        marker={"size": 5, "symbol": "diamond", "color": GREEN, "line": edge},
        hovertemplate=f"<b>average of group %{{customdata:d}}</b>{_HOVER}",
    )


def component_titles(shares: Shares | None) -> list[str]:
    """Name the axes in few words, because titles may touch; `shares` of variance are 0 to 1."""
    if shares is None:
        return [f"component {axis}" for axis in (1, 2, 3)]
    return [f"component {axis} ({100 * share:.2g} %)" for axis, share in enumerate(shares, start=1)]


def scene(figure: go.Figure, titles: list[str], points: Float[np.ndarray, "point 3"]) -> go.Figure:
    """Draw plain axes around all `points`, to scale; redrawing keeps the reader's camera."""
    low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
    sides = np.where(high > low, high - low, 1.0)
    ratio = np.maximum(sides / sides.max(), _THIN)
    ratio *= min(1.4, 1.8 / float(np.linalg.norm(ratio)))
    axes = {
        f"{letter}axis": {
            "title": {"text": titles[at], "font": _ink(12)},
            **_QUIET,
            "range": [low[at] - 0.05 * sides[at], high[at] + 0.05 * sides[at]],
        }
        for at, letter in enumerate("xyz")
    }
    figure.update_layout(
        height=560,
        uirevision="helix",
        paper_bgcolor="rgba(0,0,0,0)",
        scene={
            **axes,
            "domain": {"y": [_ABOVE_BAR, 1]},
            "aspectmode": "manual",
            "dragmode": "turntable",
            "uirevision": "helix",
            "aspectratio": dict(zip("xyz", ratio.tolist(), strict=True)),
            "camera": _CAMERA,
        },
        margin={"l": 0, "r": 0, "t": 40, "b": 0},
        legend={
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "itemsizing": "constant",
            "yref": "container",
            "y": 1 - 36 / 560,
            "yanchor": "top",
        },
    )
    return figure


def morph(points: Float[np.ndarray, "layer pos 3"], titles: list[list[str]]) -> list[go.Frame]:
    """Return a frame per layer, named by the layer, and `BETWEEN` frames between two layers."""
    frames = []
    for layer, here in enumerate(points):
        if layer:
            for part in range(1, BETWEEN + 1):
                mixed = points[layer - 1] + part / (BETWEEN + 1) * (here - points[layer - 1])
                frames.append(_frame(f"{layer - 1}–{layer}, {part}", mixed, None))
        frames.append(_frame(f"{layer}", here, titles[layer]))
    return frames


def add_player(figure: go.Figure, layers: int) -> go.Figure:
    """Draw a play and a pause button, and a slider over the layers, in place."""
    still = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": _NONE}
    moving = {"fromcurrent": True, "frame": {"duration": 220, "redraw": True}, "transition": _NONE}
    buttons = [
        {"label": label, "method": "animate", "args": [which, how]}
        for label, which, how in (("▶", None, moving), ("❚❚", [None], still))
    ]
    steps = [
        {"label": f"{layer}", "method": "animate", "args": [[f"{layer}"], still]}
        for layer in range(layers)
    ]
    place = {"y": 0, "yanchor": "top", "bgcolor": "rgba(128,128,128,0.18)", "bordercolor": LINE}
    return figure.update_layout(
        height=650,
        margin_b=120,
        updatemenus=[
            {
                **place,
                "type": "buttons",
                "direction": "left",
                "buttons": buttons,
                "x": 0,
                "xanchor": "left",
                "showactive": False,
                "pad": {"t": 26},
                "font": _ink(14),
            }
        ],
        sliders=[
            {
                **place,
                "x": 0,
                "len": 1,
                "steps": steps,
                "pad": {"t": 8, "l": 110, "r": 16},
                "font": _ink(12),
                "tickcolor": LINE,
                "activebgcolor": MUTED,
                "currentvalue": {"prefix": "layer ", "font": _ink(14)},
            }
        ],
    )


_NONE = {"duration": 0}


def _ink(size: int) -> dict[str, Any]:
    return {"color": MUTED, "size": size}


_QUIET: dict[str, Any] = {
    "showbackground": False,
    "gridcolor": _GRID,
    "zeroline": False,
    "linecolor": LINE,
    "showspikes": False,
    "nticks": 6,
    "tickfont": _ink(11),
}


def _frame(name: str, points: Points, titles: list[str] | None) -> go.Frame:
    """Return a frame of the curve; without `titles`, between layers, where nothing was measured."""
    data = go.Scatter3d(**_xyz(points), hoverinfo="skip" if titles is None else "all")
    if titles is None:
        return go.Frame(name=name, data=[data])
    axes = {f"{letter}axis_title_text": title for letter, title in zip("xyz", titles, strict=True)}
    return go.Frame(name=name, data=[data], layout={"scene": axes})


def _curve(
    points: Points, positions: Positions, name: str, line: dict[str, Any], marker: dict[str, Any]
) -> go.Scatter3d:
    return go.Scatter3d(
        **_xyz(points),
        mode="lines+markers",
        name=name,
        line=line,
        marker=marker,
        customdata=positions,
        hovertemplate=f"<b>{name}, position %{{customdata:d}}</b>{_HOVER}",
    )


def _xyz(points: Points) -> dict[str, list[float]]:
    """Return lists of coordinates to five digits; arrays in a frame might not be unpacked."""
    return {
        letter: [float(f"{value:.5g}") for value in points[:, axis]]
        for axis, letter in enumerate("xyz")
    }
