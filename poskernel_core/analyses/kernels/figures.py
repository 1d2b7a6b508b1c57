"""Positional kernels, diagonals and their distances as figures."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Num

from poskernel_core.analyses.kernels.formulas import KINDS, classify
from poskernel_core.common.heads import cell_name
from poskernel_core.common.result import Result
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.conditions import measured
from poskernel_core.plotting.kernels import kernel_curve, profile_curve
from poskernel_core.plotting.layout import (
    MUTED,
    bar_above,
    set_title,
    style,
)
from poskernel_core.plotting.maps import kernel_map
from poskernel_core.plotting.palette import (
    BLUE,
    PURPLE,
    RED,
    SCALE,
    VERMILLION,
)
from poskernel_core.plotting.parts import part


def etc_figure(etc: Result) -> go.Figure:
    """The log ETC of all heads [layer, head] as a heat map, ticks in tokens."""
    if etc.axes["log_etc"] != ("layer", "head"):
        return by_axes(etc.only("log_etc"))
    log = etc.values["log_etc"]
    ticks = [t for t in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000) if np.log(t) <= _top(etc)]
    kinds = np.array(etc.text_of("kind"), dtype=object)
    figure = go.Figure(
        go.Heatmap(
            z=log,
            zmin=0,
            zmax=_top(etc),
            colorscale=SCALE,
            xgap=1,
            ygap=1,
            customdata=np.dstack([etc.values["etc"], etc.values["half_mass_distance"], kinds]),
            hovertemplate="<b>L%{y}H%{x}</b><br>ETC %{customdata[0]:.4g}<br>%{customdata[2]}"
            "<br>half of the mass within offset %{customdata[1]}<extra></extra>",
            colorbar={"title": "ETC (tokens)", "tickvals": np.log(ticks), "ticktext": ticks},
        )
    )
    style(figure, x_title="head", y_title="layer", height=420)
    figure.update_xaxes(dtick=1, showgrid=False)
    figure.update_yaxes(dtick=1, autorange="reversed", showgrid=False)
    return figure


def _top(etc: Result) -> float:
    return float(np.log(max(np.nanmax(etc.values["visible_keys"]), 2.0)))


def head_curve(
    kernel: Result, query: int, *, log_x: bool = False, log_y: bool = False
) -> go.Figure:
    """One head's kernel over the offset, from the results [key] of the kernel analysis."""
    first = int(kernel.params["skip"])
    row = slice(first, query + 1)
    turned = {
        name: kernel.values[name][row][::-1] for name in ("kernel", "kernel_low", "kernel_high")
    }
    observed = kernel.values["observed"][row][::-1] if "observed" in kernel.values else None
    offset = np.arange(query + 1 - first)
    figure = kernel_curve(
        offset,
        turned["kernel"],
        turned["kernel_low"],
        turned["kernel_high"],
        observed,
        log_x=log_x,
        log_y=log_y,
    )
    if kernel.params["source"] == "text":  # one query at n: no band, and no mean
        figure.data = figure.data[2:]
        figure.data[0].name, figure.data[-1].name = "kernel K", "observed attention in this text"
    return figure


def kernel_figure(kernel: Result) -> go.Figure:
    """One head's kernel over the offset, or the kernels of many.

    The near offsets of a local head get room: they are spaced by their logarithm.
    """
    if kernel.axes["kernel"] == ("key",):
        values = kernel.values
        kind = int(classify(values["local_mass"], values["etc"], values["visible_keys"]))
        return head_curve(kernel, int(kernel.params["query"]), log_x=kind == KINDS.index("local"))
    return by_axes(kernel.only("kernel"))


def kernel_map_figure(found: Result) -> go.Figure:
    """The kernel of one head from every query position."""
    title = f"Kernel of {found.params['head']}"
    return kernel_map(found.values["kernel"], found.coordinates["query"], title=title)


def diagonal_figure(profile: Result) -> go.Figure:
    """One head's mean attention by offset, or that of many."""
    if profile.axes["profile"] == ("offset",):
        return profile_figure(profile, most=len(profile.values["profile"]))
    return by_axes(profile.only("profile"))


def profile_figure(head: Result, *, most: int) -> go.Figure:
    """One head's mean attention over the offset, up to `most` tokens back."""
    mean, error = (part["profile"][: most + 1] for part in (head.values, head.errors))
    figure = profile_curve(np.arange(len(mean)), mean, mean - error, mean + error)
    return figure.update_layout(height=420)  # as high as the scores beside it


def kernel_distances_figure(found: Result) -> go.Figure:
    """The layer whose heads differ most; of one head, its own."""
    if "layer" not in found.axes["distance"]:
        return by_axes(found.only("distance"))
    distance = np.nan_to_num(found.values["distance"], nan=-1.0)
    return distances_figure(found, int(distance.mean(axis=(1, 2)).argmax()))


GROUP_LOOKS = (("diamond", PURPLE), ("square", VERMILLION), ("circle", BLUE), ("x-thin", MUTED))
"""Symbol and colour of each behaviour group, in the order of the groups."""


def distances_figure(distances: Result, layer: int) -> go.Figure:
    """How far apart a layer's kernels are; groups of heads stand together, outlined."""
    distance, error = part(distances, "distance", layer=layer)
    group = part(distances, "group", layer=layer)[0]
    order = np.argsort(group, kind="stable")
    names = [cell_name(layer, head) for head in order.tolist()]
    z, spread = (each[np.ix_(order, order)] for each in (distance, error))
    text = [
        [
            f"<b>{one} – {other}</b><br>{measured(value, wrong)}"
            for other, value, wrong in zip(names, row, row_error, strict=True)
        ]
        for one, row, row_error in zip(names, z, spread, strict=True)
    ]
    figure = go.Figure(
        go.Heatmap(
            z=z,
            zmin=0,
            zmax=1,
            colorscale=SCALE,
            text=text,
            hovertemplate="%{text}<extra></extra>",
            customdata=spread,
        )
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
    bar_above(
        figure,
        "total variation, 0 = equal kernels",
        [0, 0.25, 0.5, 0.75, 1],
        ["0", "0.25", "0.5", "0.75", "1"],
    )
    return set_title(figure, f"Layer {layer}: distances between kernels")


def _outline_groups(figure: go.Figure, group: Num[np.ndarray, " head"]) -> None:
    """A red square with a light edge around every group of two or more heads."""
    for one in np.unique(group):
        places = np.flatnonzero(group == one)
        if len(places) < 2:
            continue
        first, last = places[0] - 0.5, places[-1] + 0.5
        for colour, width in (("white", 6), (RED, 3)):
            figure.add_shape(
                type="rect",
                x0=first,
                x1=last,
                y0=first,
                y1=last,
                line={"color": colour, "width": width},
            )
