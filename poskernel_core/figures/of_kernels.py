"""Results on positional kernels -> figures."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.kernels.formulas import KINDS, classify
from poskernel_core.common.result import Result
from poskernel_core.figures.by_axes import by_axes
from poskernel_core.figures.kernels import kernel_curve
from poskernel_core.figures.layout import style
from poskernel_core.figures.maps import kernel_map
from poskernel_core.figures.of_positions import profile_figure
from poskernel_core.figures.palette import SCALE


def etc_figure(etc: Result) -> go.Figure:
    """The log ETC of all heads [layer, head] as a heat map, ticks in tokens."""
    if etc.axes["log_etc"] != ("layer", "head"):
        return by_axes(etc)
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
    return by_axes(kernel)


def kernel_map_figure(found: Result) -> go.Figure:
    """The kernel of one head from every query position."""
    title = f"Kernel of {found.params['head']}"
    return kernel_map(found.values["kernel"], found.coordinates["query"], title=title)


def diagonal_figure(profile: Result) -> go.Figure:
    """One head's mean attention by offset, or that of many."""
    if profile.axes["profile"] == ("offset",):
        return profile_figure(profile, most=len(profile.values["profile"]))
    return by_axes(profile)
