"""Pinned heads beside each other: kernels on one axis, distances, measures by depth."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.comparison.pins import read_pins
from poskernel_core.common.result import Result
from poskernel_core.plotting.conditions import measured
from poskernel_core.plotting.curves import add_by_offset, add_curve, look
from poskernel_core.plotting.layout import (
    FLOOR,
    legend_under_title,
    log_axis,
    log_offsets,
    set_title,
    style,
)
from poskernel_core.plotting.palette import SCALE, ink_on, scale_hex


def pin_labels(found: Result) -> list[str]:
    """Return the pins' labels, without models and settings if all share them."""
    pins = [read_pins(text)[0] for text in found.words("heads")]
    settings = {(pin.model, pin.settings) for pin in pins}
    return [pin.cell if len(settings) == 1 else pin.label for pin in pins]


def short_labels(found: Result) -> list[str]:
    """Return the heads' names, numbered where two are equal."""
    cells = [read_pins(text)[0].cell for text in found.words("heads")]
    return [
        cell if cells.count(cell) == 1 else f"{cell} ({cells[: place + 1].count(cell)})"
        for place, cell in enumerate(cells)
    ]


def distances_figure(found: Result) -> go.Figure:
    """Draw the distances between pinned heads as a square map, with errors written in."""
    if found.axes["distance"] != ("pin", "other"):
        return kernels_figure(found)
    labels, long = short_labels(found), pin_labels(found)
    gap, error = found.values["distance"], found.errors["distance"]
    figure = go.Figure().add_heatmap(
        z=gap,
        x=labels,
        y=labels,
        zmin=0,
        zmax=1,
        colorscale=SCALE,
        xgap=2,
        ygap=2,
        customdata=[
            [[error[i, j], long[i], long[j]] for j in range(len(labels))]
            for i in range(len(labels))
        ],
        hovertemplate="<b>%{customdata[1]}</b> and<br><b>%{customdata[2]}</b><br>"
        "%{z:.3f} ± %{customdata[0]:.2g}"
        "<extra></extra>",
        colorbar={"title": "TV", "thickness": 12},
    )
    colours = scale_hex(np.clip(np.nan_to_num(gap), 0, 1))
    for i in range(len(labels)):
        for j in range(len(labels)):
            if i != j:
                figure.add_annotation(
                    x=labels[j],
                    y=labels[i],
                    text=measured(float(gap[i, j]), float(error[i, j])).replace(" ± ", "<br>± "),
                    showarrow=False,
                    font={"size": 11, "color": ink_on(colours[i][j])},
                )
    style(figure, x_title="", y_title="", height=120 + 62 * len(labels))
    figure.update_yaxes(autorange="reversed", showgrid=False, type="category")
    figure.update_xaxes(showgrid=False, type="category")
    return set_title(figure, "Distances between heads (TV, 0 to 1)")


def kernels_figure(found: Result, *, log_x: bool = False, log_y: bool = False) -> go.Figure:
    """Draw the kernels of pinned heads over the offset, with bands of one standard error."""
    figure = go.Figure()
    kernel, error = (np.atleast_2d(part["kernel"]) for part in (found.values, found.errors))
    offset = np.arange(kernel.shape[-1])
    labels = ["kernel"]
    if found.axes["kernel"] == ("pin", "offset"):
        places = found.values["position"].tolist()
        labels = [f"{pin}, n = {n}" for pin, n in zip(pin_labels(found), places, strict=True)]
    rows = dict(zip(labels, zip(kernel, error, strict=True), strict=True))
    looks = [look(place) for place in range(len(rows))]
    add_by_offset(figure, offset, rows, looks, log_x=log_x, floor=FLOOR if log_y else None)
    style(
        figure,
        x_title=f"offset n − i (tokens{', log scale' if log_x else ''})",
        y_title=f"probability per token{' (log scale)' if log_y else ''}",
        height=440,
    )
    if log_x:
        figure.update_xaxes(**log_offsets(len(offset) - 1))
    if log_y:
        low = max(float(np.nanmin(kernel)), FLOOR)
        figure.update_yaxes(**log_axis(low, max(float(np.nanmax(kernel)), 2 * low)))
    else:
        figure.update_yaxes(rangemode="tozero")
    return set_title(legend_under_title(figure), "Kernels by offset")


def depth_figure(found: Sequence[Result], names: Sequence[str]) -> go.Figure:
    """Draw a measure's mean over the heads of each layer against depth, for several models.

    Dotted lines show the smallest and the largest value of a layer's heads.
    """
    figure = go.Figure()
    for place, (one, name) in enumerate(zip(found, names, strict=True)):
        shown = look(place)
        depth = one.values["depth"]
        for edge in ("smallest", "largest"):
            figure.add_scatter(
                x=depth,
                y=one.values[edge],
                mode="lines",
                line={"color": shown.colour, "width": 0.8, "dash": "dot"},
                name=f"{name}: {edge} head",
                legendgroup=name,
                showlegend=False,
                hovertemplate=f"<b>{name}</b>, {edge} head<br>%{{y:.4g}}<extra></extra>",
            )
        add_curve(
            figure, depth, one.values["mean"], None, name=name, look=shown,
            where="depth %{x:.2f}, mean over heads",
        )  # fmt: skip
    first = found[0]
    style(
        figure,
        x_title="depth: layer over the last layer's number",
        y_title=f"{first.params['measure']} ({first.units['mean']})",
        height=420,
    )
    return set_title(legend_under_title(figure), f"{first.params['measure']} by depth")


def one_depth_figure(found: Result) -> go.Figure:
    """Draw a measure by depth in one model."""
    return depth_figure([found], [found.model_title])
