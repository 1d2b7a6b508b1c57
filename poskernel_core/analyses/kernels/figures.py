"""Positional kernels, diagonals and their distances as figures."""

import math
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Num

from poskernel_core.analyses.kernels.formulas import KINDS, classify
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.conditions import measured
from poskernel_core.plotting.curves import add_band
from poskernel_core.plotting.head_map import head_map
from poskernel_core.plotting.layout import (
    FLOOR,
    MUTED,
    bar_above,
    log_axis,
    log_offsets,
    relayout,
    set_title,
    style,
)
from poskernel_core.plotting.maps import kernel_map
from poskernel_core.plotting.palette import BLUE, PURPLE, RED, SCALE, VERMILLION, fade
from poskernel_core.plotting.parts import part


def etc_figure(etc: Result) -> go.Figure:
    """Draw the log ETC of all heads [layer, head] as a heat map, ticks in tokens."""
    if etc.axes["log_etc"] != ("layer", "head"):
        return by_axes(etc.only("log_etc"))
    top = float(np.log(max(np.nanmax(etc.values["visible_keys"]), 2.0)))
    ticks = [t for t in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000) if np.log(t) <= top]
    kinds = np.array(etc.text_of("kind"), dtype=object)
    return head_map(
        etc.values["log_etc"],
        zmin=0,
        zmax=top,
        customdata=np.dstack([etc.values["etc"], etc.values["half_mass_distance"], kinds]),
        told="<br>ETC %{customdata[0]:.4g}<br>%{customdata[2]}"
        "<br>half of the mass within offset %{customdata[1]}",
        colorbar={"title": "ETC (tokens)", "tickvals": np.log(ticks), "ticktext": ticks},
    )


def near_kernels_figure(found: Result) -> go.Figure:
    """Draw all heads as points in their plane, coloured by layer."""
    if found.axes["place"] != ("layer", "head", "component"):
        return by_axes(found)
    there = np.isfinite(found.values["place"]).all(axis=-1)
    across, upwards = found.values["place"][there].T
    figure = go.Figure().add_scatter(
        x=across,
        y=upwards,
        mode="markers",
        marker={"color": np.nonzero(there)[0], "colorscale": SCALE, "colorbar": {"title": "layer"}},
        text=[head_name(*each) for each in np.argwhere(there).tolist()],
        hovertemplate="<b>%{text}</b><extra></extra>",
    )
    unit = found.units["place"]
    style(figure, x_title=f"component 0 ({unit})", y_title=f"component 1 ({unit})", height=520)
    figure.update_yaxes(scaleanchor="x")
    return set_title(figure, f"Heads with near kernels: stress {found.values['stress']:.2f}")


def head_curve(
    kernel: Result, query: int, *, log_x: bool = False, log_y: bool = False
) -> go.Figure:
    """Draw a head's kernel by offset, with its spread over queries and the mean attention."""
    first = int(kernel.params["skip"])
    names = ("kernel", "kernel_low", "kernel_high", "observed")
    columns = [np.arange(query + 1 - first)]
    columns += [kernel.values[n][first : query + 1][::-1] for n in names if n in kernel.values]
    hover = "K %{customdata[1]:.3g}<br>10–90 % %{customdata[2]:.3g} – %{customdata[3]:.3g}"
    if "observed" in kernel.values:
        hover += "<br>observed %{customdata[4]:.3g}"
    figure = _banded(columns, hover, ("kernel K (mean)", "10–90 % of queries"), log_x, log_y)
    if "observed" in kernel.values:
        figure.add_scatter(
            x=columns[0] + log_x,
            y=_shown(columns[4], log_y),
            mode="lines",
            line={"color": VERMILLION, "width": 2, "dash": "dash"},
            name="observed attention (mean)",
            hoverinfo="skip",
        )
    if kernel.params["source"] == "text":  # one query at n: no band, and no mean
        figure.data = figure.data[2:]
        figure.data[0].name, figure.data[-1].name = "kernel K", "observed attention in this text"
    return _over_offsets(figure, columns, "offset n − i", log_x, log_y)


def _banded(
    columns: list[np.ndarray],
    hover: str,
    names: tuple[str, str],
    log_x: bool = False,
    log_y: bool = False,
) -> go.Figure:
    """Draw a mean line with its band; `columns` are offset, mean, low, high, ... (each [k])."""
    offset, mean, low, high = columns[:4]
    figure, x = go.Figure(), offset + log_x
    edges, named = (_shown(low, log_y), _shown(high, log_y)), {"name": names[1]}
    add_band(figure, x, *edges, fade(BLUE, 0.32), {}, named, legendgroup="band")
    return figure.add_scatter(
        x=x,
        y=_shown(mean, log_y),
        mode="lines",
        name=names[0],
        line={"color": BLUE, "width": 2.5},
        customdata=np.stack(columns, axis=-1),
        hovertemplate=f"<b>offset %{{customdata[0]:d}}</b><br>{hover}<extra></extra>",
    )


def _shown(probability: np.ndarray, log_y: bool) -> np.ndarray:
    return np.maximum(probability, FLOOR) if log_y else probability


def _over_offsets(
    figure: go.Figure,
    columns: list[np.ndarray],
    what: str,
    log_x: bool = False,
    log_y: bool = False,
) -> go.Figure:
    """Label the axes; on a log x-axis points lie at offset + 1, but the ticks show the offset."""
    x_title = f"{what} (tokens{', log spacing' if log_x else ''})"
    y_title = f"probability per token{' (log scale)' if log_y else ''}"
    style(figure, x_title=x_title, y_title=y_title)
    axes: dict[str, Any] = {
        "hovermode": "x unified",
        "yaxis": _log_probability(columns[1:]) if log_y else {"rangemode": "tozero"},
        # the title of the hover would be x, which is offset + 1 on a log axis
        "xaxis": {"unifiedhovertitle": {"text": "probability per token"}},
    }
    if log_x:
        axes["xaxis"] |= log_offsets(int(columns[0].max()))
    return relayout(figure, axes)


def _log_probability(curves: list[np.ndarray]) -> dict[str, Any]:
    """Return a log y-axis for `curves`; the lowest tick marks values below the floor."""
    low, high = (float(end([end(curve) for curve in curves])) for end in (np.nanmin, np.nanmax))
    axis = log_axis(max(low, FLOOR), max(high, 2 * FLOOR))
    if low < FLOOR:
        axis["ticktext"][0] = f"≤ {axis['ticktext'][0]}"
    return axis


def kernel_figure(kernel: Result) -> go.Figure:
    """Draw one head's kernel by offset, or the kernels of many heads.

    The x-axis of a local head is logarithmic, to give near offsets room.
    """
    if kernel.axes["kernel"] == ("key",):
        values = kernel.values
        kind = int(classify(values["local_mass"], values["etc"], values["visible_keys"]))
        return head_curve(kernel, int(kernel.params["query"]), log_x=kind == KINDS.index("local"))
    return by_axes(kernel.only("kernel"))


def kernel_map_figure(found: Result) -> go.Figure:
    """Draw the kernel of one head at every query position."""
    title = f"Kernel of {found.params['head']}"
    return kernel_map(found.values["kernel"], found.coordinates["query"], title=title)


def diagonal_figure(profile: Result) -> go.Figure:
    """Draw one head's mean attention by offset, or that of many heads."""
    if profile.axes["profile"] == ("offset",):
        return profile_figure(profile, most=len(profile.values["profile"]))
    return by_axes(profile.only("profile"))


def profile_figure(head: Result, *, most: int) -> go.Figure:
    """Draw a head's mean attention by offset, up to `most` tokens back, ± 1 standard error."""
    mean, error = (each["profile"][: most + 1] for each in (head.values, head.errors))
    hover = "P %{customdata[1]:.3g}<br>± 1 s.e. %{customdata[2]:.3g} – %{customdata[3]:.3g}"
    columns = [np.arange(len(mean)), mean, mean - error, mean + error]
    figure = _banded(columns, hover, ("mean attention P(k)", "± 1 s.e."))
    _over_offsets(figure, columns, "offset k = n − i")
    return figure.update_layout(height=420)  # as high as the figure of scores beside it


def kernel_distances_figure(found: Result) -> go.Figure:
    """Draw the layer whose heads differ most, or the layer of the selected head."""
    if "layer" not in found.axes["distance"]:
        return by_axes(found.only("distance"))
    distance = np.nan_to_num(found.values["distance"], nan=-1.0)
    return distances_figure(found, int(distance.mean(axis=(1, 2)).argmax()))


GROUP_LOOKS = (("diamond", PURPLE), ("square", VERMILLION), ("circle", BLUE), ("x-thin", MUTED))
"""Symbol and colour of each behaviour group, in the order of the groups."""


def distances_figure(distances: Result, layer: int) -> go.Figure:
    """Draw the distances of a layer's kernels; groups of heads are adjacent and outlined."""
    distance, error = part(distances, "distance", layer=layer)
    group = part(distances, "group", layer=layer)[0]
    order = np.argsort(group, kind="stable")
    names = [head_name(layer, head) for head in order.tolist()]
    z, spread = (each[np.ix_(order, order)] for each in (distance, error))
    text = [
        [
            f"<b>{one} – {other}</b><br>{measured(value, wrong)}"
            for other, value, wrong in zip(names, row, row_error, strict=True)
        ]
        for one, row, row_error in zip(names, z, spread, strict=True)
    ]
    figure = go.Figure().add_heatmap(
        z=z,
        zmin=0,
        zmax=1,
        colorscale=SCALE,
        text=text,
        hovertemplate="%{text}<extra></extra>",
        customdata=spread,
    )
    _outline_groups(figure, group[order])
    style(figure, x_title="head", y_title="head", height=520)
    step = math.ceil(len(names) / 32)
    look = {
        "showgrid": False,
        "constrain": "domain",
        "tickvals": list(range(0, len(names), step)),
        "ticktext": names[::step],
    }
    ends = [-0.5, len(names) - 0.5]
    figure.update_xaxes(**look, range=ends, constraintoward="left", tickangle=-90)
    figure.update_yaxes(**look, range=ends[::-1], constraintoward="top", scaleanchor="x")
    ticks = [0, 0.25, 0.5, 0.75, 1]
    bar_above(figure, "total variation, 0 = equal kernels", ticks, [f"{tick}" for tick in ticks])
    return set_title(figure, f"Layer {layer}: distances between kernels")


def _outline_groups(figure: go.Figure, group: Num[np.ndarray, " head"]) -> None:
    """Outline every group of two or more heads: a red square with a light edge."""
    for one in np.unique(group):
        places = np.flatnonzero(group == one)
        if len(places) < 2:
            continue
        first, last = places[0] - 0.5, places[-1] + 0.5
        corners = {"x0": first, "x1": last, "y0": first, "y1": last}
        for colour, width in (("white", 6), (RED, 3)):
            figure.add_shape(type="rect", **corners, line={"color": colour, "width": width})
