"""Positional kernels, diagonals and their distances as figures."""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Num

from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.plotting.conditions import measured
from poskernel_core.plotting.curves import (
    Curve,
    Curves,
    Look,
    add_offsets,
    add_others,
    add_stems,
    near,
)
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
from poskernel_core.plotting.maps import (
    difference_colours,
    kernel_map,
    probability_colours,
)
from poskernel_core.plotting.multiples import small_multiples
from poskernel_core.plotting.palette import BLUE, PURPLE, RED, SCALE, VERMILLION


def etc_map(etc: Result) -> go.Figure:
    """Draw the log ETC of all heads [layer, head] as a heat map, ticks in tokens."""
    top = float(np.log(max(np.nanmax(etc.values["visible_keys"]), 2.0)))
    ticks = [t for t in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000) if np.log(t) <= top]
    kinds = np.array(etc.text_of("kind"), dtype=object)
    return head_map(
        np.log(etc.values["etc"]),
        zmin=0,
        zmax=top,
        customdata=np.dstack([etc.values["etc"], etc.values["half_mass_distance"], kinds]),
        hover_text="<br>ETC %{customdata[0]:.4g}<br>%{customdata[2]}"
        "<br>half-mass distance %{customdata[1]:.4g}",
        colorbar={
            "title": "ETC (tokens,<br>log scale)",
            "tickvals": np.log(ticks),
            "ticktext": ticks,
        },
    )


OWN, OBSERVED = Look(BLUE), Look(VERMILLION, "dash", "circle-open")
AT = "<b>offset %{customdata[0]:d}</b><br>"
RATIO_FLOOR = 1e-5
"""Kernels below this have no ratio: it would show the noise of very small probabilities."""
RATIO_HEIGHT = 110


def plane(result: Result) -> go.Figure:
    """Draw all heads as points in their plane, coloured by layer."""
    there = np.isfinite(result.values["place"]).all(axis=-1)
    across, upwards = result.values["place"][there].T
    figure = go.Figure().add_scatter(
        x=across,
        y=upwards,
        mode="markers",
        marker={"color": np.nonzero(there)[0], "colorscale": SCALE, "colorbar": {"title": "layer"}},
        text=[head_name(*cell) for cell in np.argwhere(there).tolist()],
        hovertemplate="<b>%{text}</b><extra></extra>",
    )
    unit = result.units["place"]
    style(figure, x_title=f"component 0 ({unit})", y_title=f"component 1 ({unit})", height=520)
    figure.update_yaxes(scaleanchor="x")
    return set_title(figure, f"Heads with near kernels: stress {result.values['stress']:.2f}")


def head_curve(
    kernel: Result,
    query: int | None = None,
    *,
    log_x: bool = True,
    log_y: bool = False,
    others: Curves | None = None,
) -> go.Figure:
    """Draw a head's kernel by offset, with its spread over queries and the mean attention.

    Below is the ratio of attention to kernel. `others` are the kernels of other heads [head, key].
    """
    query = int(kernel.params["query"]) if query is None else query
    seen = slice(int(kernel.params["skip"]), query + 1)
    names = ("kernel", "kernel_low", "kernel_high", "observed")
    rows = [kernel.values[name][seen][::-1] for name in names if name in kernel.values]
    offset, observed, figure = np.arange(len(rows[0])), rows[3:], go.Figure()
    x, points = offset + log_x, near(len(offset), log_x=log_x)
    hover, mean = "K %{customdata[1]:.3g}", " (mean)"
    many = kernel.params["source"] != "text"  # else one query at n: no band, and no mean
    if many:
        hover += "<br>10–90 % %{customdata[2]:.3g} – %{customdata[3]:.3g}"
    drawn = [_shown(row, log_y) for row in rows]
    if others is not None:
        others = _shown(others[:, seen][:, ::-1], log_y)
        add_others(figure, x, others)
    base = float(np.nanmin(drawn)) if log_y else 0.0
    add_stems(figure, x, np.stack([drawn[0], *drawn[3:]]), points=points, base=base)
    if observed:
        hover += "<br>observed %{customdata[4]:.3g}"
        add_offsets(
            figure,
            x,
            drawn[3],
            None,
            name=f"observed attention{mean if many else ' in this text'}",
            look=OBSERVED,
            points=points,
            hoverinfo="skip",
        )
    add_offsets(
        figure,
        x,
        drawn[0],
        (drawn[1], drawn[2]) if many else None,
        name=f"kernel K{mean if many else ''}",
        look=OWN,
        points=points,
        band_name="10–90 % of queries",
        customdata=np.stack([offset, *rows], axis=-1),
        hovertemplate=f"{AT}{hover}<extra></extra>",
    )
    _over_offsets(figure, rows, "offset n − i", log_x, log_y, others)
    return _with_ratio(figure, x, observed[0], rows[0], points) if observed else figure


def _with_ratio(
    figure: go.Figure, x: np.ndarray, observed: Curve, kernel: Curve, points: int
) -> go.Figure:
    """Add a panel below, in place: observed attention over kernel, on a log axis centred on 1."""
    there = (kernel >= RATIO_FLOOR) & (observed > 0)
    ratio = np.full(len(kernel), np.nan)
    ratio[there] = observed[there] / kernel[there]
    reach = 1.15 * max(float(np.abs(np.log10(ratio[there])).max(initial=0)), math.log10(2))
    share = RATIO_HEIGHT / float(figure.layout.height)
    axis = figure.layout.yaxis.to_plotly_json() | log_axis(10**-reach, 10**reach)
    axis |= {"anchor": "x", "domain": [0, share], "range": [-reach, reach], "rangemode": "normal"}
    axis["title"] = {"text": "observed / K<br>(log scale)", "standoff": 12}
    figure.update_layout(yaxis2=axis, yaxis_domain=[share + 0.07, 1], xaxis_anchor="y2")
    figure.update_layout(height=figure.layout.height + RATIO_HEIGHT)
    line = {"color": MUTED, "width": 1}
    figure.add_shape(type="line", xref="paper", x0=0, x1=1, yref="y2", y0=1, y1=1, line=line)
    below: dict[str, Any] = {"yaxis": "y2", "showlegend": False}
    add_stems(figure, x, ratio[None], points=points, base=1.0, **below)
    hover = "observed / K %{y:.3g}<extra></extra>"
    look = Look(VERMILLION)
    add_offsets(figure, x, ratio, None, name="observed / K", look=look, points=points,
                hovertemplate=hover, **below)  # fmt: skip
    return figure


def _shown(probability: np.ndarray, log_y: bool) -> np.ndarray:
    return np.maximum(probability, FLOOR) if log_y else probability


def _over_offsets(
    figure: go.Figure,
    rows: Sequence[Curve],
    what: str,
    log_x: bool = False,
    log_y: bool = False,
    others: Curves | None = None,
) -> go.Figure:
    """Label the axes; on a log x-axis points lie at offset + 1, but the ticks show the offset.

    Much higher values of other heads do not flatten the head's own: the axis ends before them.
    """
    x_title = f"{what} (tokens{', log scale' if log_x else ''})"
    y_title = f"probability per token{' (log scale)' if log_y else ''}"
    style(figure, x_title=x_title, y_title=y_title)
    axes: dict[str, Any] = {
        "hovermode": "x unified",
        "legend": {"tracegroupgap": 0, "traceorder": "normal"},
        "yaxis": _log_probability(rows) if log_y else {"rangemode": "tozero"},
        # the title of the hover would be x, which is offset + 1 on a log axis
        "xaxis": {"unifiedhovertitle": {"text": "probability per token"}},
    }
    if others is not None and not log_y:
        top = float(np.nanmax(rows))
        axes["yaxis"]["range"] = [0, 1.05 * max(top, min(2 * top, float(np.nanmax(others))))]
    if log_x:
        axes["xaxis"] |= log_offsets(len(rows[0]) - 1)
    return relayout(figure, axes)


def _log_probability(curves: Sequence[Curve]) -> dict[str, Any]:
    """Return a log y-axis for `curves`; the lowest tick marks values below the floor."""
    low, high = (float(end([end(curve) for curve in curves])) for end in (np.nanmin, np.nanmax))
    axis = log_axis(max(low, FLOOR), max(high, 2 * FLOOR))
    if low < FLOOR:
        axis["ticktext"][0] = f"≤ {axis['ticktext'][0]}"
    return axis


def diagonals(head: Result, most: int | None = None) -> go.Figure:
    """Draw a head's mean attention by offset, up to `most` tokens back, ± 1 standard error."""
    last = len(head.values["profile"]) if most is None else most + 1
    mean, error = (part["profile"][:last] for part in (head.values, head.errors))
    offset, edges, figure = np.arange(len(mean)), (mean - error, mean + error), go.Figure()
    points = near(len(offset))
    add_stems(figure, offset, mean[None], points=points)
    add_offsets(
        figure,
        offset,
        mean,
        edges,
        name="mean attention P(k) ± 1 s.e.",
        look=OWN,
        points=points,
        customdata=np.stack([offset, mean, error], axis=-1),
        hovertemplate=f"{AT}P %{{customdata[1]:.3g}} ± %{{customdata[2]:.2g}}<extra></extra>",
    )
    _over_offsets(figure, [mean, *edges], "offset k = n − i")
    return figure.update_layout(height=420)  # as high as the figure of scores beside it


GROUP_LOOKS = (("diamond", PURPLE), ("square", VERMILLION), ("circle", BLUE), ("x-thin", MUTED))
"""Symbol and colour of each behaviour group, in the order of the groups."""


def distances(result: Result) -> go.Figure:
    """Draw the distances of a layer's kernels; groups of heads are adjacent and outlined.

    Of all layers it is the one whose heads differ most.
    """
    if "layer" in result.axes["distance"]:
        mean = np.nan_to_num(result.values["distance"], nan=-1.0).mean(axis=(1, 2))
        result = result.select(layer=int(mean.argmax()))
    layer, group = result.chosen["layer"], result.values["group"]
    distance, error = result.values["distance"], result.errors["distance"]
    order = np.argsort(group, kind="stable")
    names = [head_name(layer, head) for head in order.tolist()]
    z, spread = (array[np.ix_(order, order)] for array in (distance, error))
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
    for one in np.unique(group):
        places = np.flatnonzero(group == one)
        if len(places) < 2:
            continue
        first, last = places[0] - 0.5, places[-1] + 0.5
        corners = {"x0": first, "x1": last, "y0": first, "y1": last}
        for colour, width in (("white", 6), (RED, 3)):
            figure.add_shape(type="rect", **corners, line={"color": colour, "width": width})


PANELS: Final = {
    "kernel": "Kernel",
    "observed": "Observed attention",
    "difference": "Kernel − observed",
}


def panels(result: Result) -> list[str]:
    """Return the panels of a result: without observed attention it has only the kernel."""
    return [*PANELS] if "observed" in result.values else ["kernel"]


def map_panel(result: Result, panel: str = "kernel") -> go.Figure:
    """Draw one of ``PANELS`` over key and query positions."""
    queries = result.coordinates["query"].astype(np.int64)
    seen = np.isfinite(result.values["kernel"]).any(axis=1)
    both = [result.values[name][seen, : int(queries[-1]) + 1] for name in panels(result)[:2]]
    if panel == "difference":
        cells = both[0] - both[1]
        colours = difference_colours(cells, *both)
    else:  # one scale for both probabilities
        cells, colours = both[[*PANELS].index(panel)], probability_colours(*both)
    return kernel_map(cells, queries[seen], title=PANELS[panel], colours=colours)


def of_layer(layer: Result, head: int = 0) -> go.Figure:
    """Draw the kernels of all heads of a layer by offset, on common axes; one is marked."""
    first, stop = int(layer.params["skip"]), int(layer.params["query"]) + 1
    seen, number = slice(first, stop), layer.chosen["layer"]
    rows = np.ascontiguousarray(layer.values["kernel"][:, seen][:, ::-1])
    labels = [head_name(number, index) for index in range(len(rows))]
    return small_multiples(rows, labels, head)
