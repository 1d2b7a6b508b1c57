"""All heads of a model as points: one measure against another, coloured by a third."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from poskernel_core.common.axes import PerHead
from poskernel_core.common.heads import head_name
from poskernel_core.common.rounding import rounded
from poskernel_core.plotting.histogram import log_span
from poskernel_core.plotting.layout import (
    LINE,
    MUTED,
    SELECTED,
    log_axis,
    log_ticks,
    number,
    style,
    unit_above,
)
from poskernel_core.plotting.palette import CATEGORICAL, DIVERGING, KIND_LOOKS, NO_VALUE, RED, SCALE

Head = tuple[int, int]
FAINT = 0.2
"""Opacity of points that are faded."""

SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up")


@dataclass(frozen=True, eq=False)
class Column:
    """A number or kind of every head.

    Attributes:
        unit: empty if unknown.
        values: ``[layer, head]``, NaN for none; for kinds their indices in ``labels``.
        errors: standard errors of the values, or None.
        scale: of colours and axes: ``linear``, ``unit``, ``log``, ``diverging``, ``cosine``, or
            ``labels`` for kinds.
        source: whose it is, if it is not ours.
    """

    title: str
    unit: str
    values: PerHead
    errors: PerHead | None = None
    scale: str = "linear"
    labels: tuple[str, ...] = ()
    source: str = ""

    @property
    def heading(self) -> str:
        """Title, unit and source."""
        unit = f" ({self.unit})" if self.unit else ""
        source = f", from {self.source}" if self.source else ""
        return f"{self.title}{unit}{source}"

    def text(self, head: Head) -> str:
        """Return one head's value with its error, or its kind."""
        value = float(self.values[head])
        if self.labels:
            return self.labels[int(value)] if value >= 0 else "none"
        if np.isnan(value):
            return "no value"
        error = None if self.errors is None else float(self.errors[head])
        return rounded(value, error, self.unit)

    @property
    def logarithmic(self) -> bool:
        """Whether to draw a log scale: the column declares it, and all its numbers are positive."""
        there = self.values[np.isfinite(self.values)]
        return self.scale == "log" and there.size > 0 and bool((there > 0).all())


def shown_on(x: Column, y: Column) -> list[Head]:
    """Return the heads that have both values, layer after layer."""
    there = np.isfinite(x.values) & np.isfinite(y.values)
    return [(int(layer), int(head)) for layer, head in np.argwhere(there)]


def head_scatter(
    x: Column,
    y: Column,
    colour: Column,
    *,
    hover_columns: Sequence[Column] = (),
    selected: Head | None = None,
    chosen: Sequence[Head] = (),
    faint: np.ndarray | None = None,
) -> go.Figure:
    """Draw every head with both values; rings mark ``selected`` and ``chosen`` heads.

    Heads for which ``faint[layer, head]`` is true are faded. A point's hover text gives the head's
    name, the first entry of its custom data, and its values in ``hover_columns``, by default those
    drawn.
    """
    heads = shown_on(x, y)
    hover_columns = hover_columns or list(
        {column.heading: column for column in (x, y, colour)}.values()
    )
    figure = go.Figure()

    def add(some: list[Head], marker: dict[str, Any], name: str = "") -> None:
        dims = [faint is not None and bool(faint[head]) for head in some]
        for dim in sorted(set(dims)):
            among = [place for place, flag in enumerate(dims) if flag == dim]
            shade = marker["color"]
            own = {"color": [shade[k] for k in among]} if isinstance(shade, list) else {}
            trace = _points([some[k] for k in among], x, y, hover_columns, marker | own, name)
            if dim:
                opacity = {"opacity": FAINT}
                trace.update(
                    marker=opacity,
                    selected={"marker": opacity},
                    unselected={"marker": opacity},
                    showlegend=all(dims),
                )
            figure.add_trace(trace)

    if colour.labels:
        for code, label in enumerate(colour.labels):
            known = KIND_LOOKS.get(label)
            shade = known.colour if known else CATEGORICAL[code % len(CATEGORICAL)]
            marker = {"color": shade, "symbol": SYMBOLS[code % len(SYMBOLS)]}
            codes = np.nan_to_num(colour.values, nan=-1)
            if some := [head for head in heads if int(codes[head]) == code]:
                add(some, marker, label)
    else:
        coloured = [head for head in heads if np.isfinite(colour.values[head])]
        add(coloured, _marker(coloured, colour))
        if others := [head for head in heads if not np.isfinite(colour.values[head])]:
            grey = {"color": NO_VALUE, "symbol": "circle-open", "line": {"width": 1.5}}
            add(others, grey, "no value")
    ring = {"color": "rgba(0,0,0,0)", "size": 15, "line": {"width": 1.6, "color": LINE}}
    silent, among = {"hoverinfo": "skip", "showlegend": False}, set(heads)
    ringed = [head for head in chosen if head in among]
    if ringed:
        figure.add_trace(_marks("chosen", ringed, x, y, ring, **silent))
    if selected is not None and selected in among:
        at = ring | {"size": 20, "line": {"width": 2, "color": RED}}
        figure.add_trace(_marks(SELECTED, [selected], x, y, at, **silent))
    style(figure, x_title=_safe(x.heading), y_title=_safe(y.heading), height=520)
    figure.update_layout(showlegend=bool(colour.labels), dragmode="lasso", hovermode="closest")
    figure.update_layout(margin_t=40 if colour.labels else 76, margin_b=84)
    if not colour.labels:
        unit_above(figure, _safe(colour.heading), 48)  # the bar's own title takes twice its room
    for column, axis in ((x, "xaxis"), (y, "yaxis")):
        if column.logarithmic:
            figure.update_layout({axis: log_axis(*log_span(column.values))})
    return figure


def _safe(text: str) -> str:
    """Escape a text, which may come from a reader's file, for Plotly."""
    return html.escape(text, quote=False)


def _points(
    heads: Sequence[Head],
    x: Column,
    y: Column,
    columns: Sequence[Column],
    marker: dict[str, Any],
    name: str = "",
) -> go.Scatter:
    lines = [
        f"{_safe(column.heading)}: %{{customdata[{i}]}}" for i, column in enumerate(columns, 1)
    ]
    return _marks(
        name,
        heads,
        x,
        y,
        {"size": 10, "line": {"width": 1.2, "color": MUTED}} | marker,
        customdata=[
            [head_name(*head), *(column.text(head) for column in columns)] for head in heads
        ],
        hovertemplate="<br>".join(["<b>%{customdata[0]}</b>", *lines]) + "<extra></extra>",
    )


def _marks(
    name: str, heads: Sequence[Head], x: Column, y: Column, marker: dict[str, Any], **more: Any
) -> go.Scatter:
    """Return marks that look the same whether Plotly has selected them or not."""
    return go.Scatter(
        x=[float(x.values[head]) for head in heads],
        y=[float(y.values[head]) for head in heads],
        mode="markers",
        name=name,
        marker=marker,
        selected={"marker": {"opacity": 1}},
        unselected={"marker": {"opacity": 1}},
        **more,
    )


def _marker(heads: Sequence[Head], colour: Column) -> dict[str, Any]:
    values = np.array([colour.values[head] for head in heads], dtype=float)
    bar: dict[str, Any] = {
        "orientation": "h",
        "thickness": 12,
        "len": 0.75,
        "x": 0,
        "xanchor": "left",
        "y": 1.02,
        "yanchor": "bottom",
    }
    shades: tuple[str, ...] = SCALE
    if colour.logarithmic and values.size:
        low = float(values.min())
        high = max(float(values.max()), 1.0001 * low)
        ticks = log_ticks(low, high) or [low, high]
        bar |= {"tickvals": np.log(ticks).tolist(), "ticktext": [number(tick) for tick in ticks]}
        values, ends = np.log(values), (float(np.log(low)), float(np.log(high)))
    elif colour.scale == "diverging" or (values.size and values.min() < 0):
        reach = max(0.01, float(np.abs(values).max(initial=0)))
        shades, ends = DIVERGING, (-reach, reach)
    else:
        top = 1.0 if colour.scale in ("unit", "cosine") else float(values.max(initial=0.01))
        ends = (0.0, top)
    return {
        "color": values.tolist(),
        "cmin": ends[0],
        "cmax": ends[1],
        "colorscale": [[i / (len(shades) - 1), shade] for i, shade in enumerate(shades)],
        "colorbar": bar,
        "showscale": True,
    }
