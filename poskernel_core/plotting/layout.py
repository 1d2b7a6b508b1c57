"""Shared layout of figures: neutral lines, titles with units, ticks of log scales, export.

Backgrounds are transparent and text colours unset, so that a figure takes those of the page (light
or dark); the greys set here are legible on both.
"""

import html
import math
from typing import Any

import numpy as np
import plotly.graph_objects as go

from poskernel_core.common.rounding import as_printed

GRID = "rgba(128,128,128,0.22)"
LINE = "rgba(128,128,128,0.65)"
MASKED = "rgba(128,128,128,0.16)"
MUTED = "#777D84"  # text that cannot take the page's colour; contrast 4.2:1 on white and near-black

TITLE = 36  # height of a title in pixels
BAR = 60  # pixels from the figure's edge to its colour bar
SHRUNK = 0.81  # height of a square map in a narrow column, as a share of its full height
BARE = 20  # pixels above a plotting area without a title
THIRD = 430  # pixels; the height of a square map in a third of the page
MAX_TITLE = 42  # letters on one line of 320 pixels

SHARE = "share of attention"
SELECTED = "selected"  # the name of what marks a selection, which a picture for a paper leaves out
FLOOR = 1e-6  # probabilities are drawn no lower than this on a log axis; hover shows the true value
LOG_OFFSETS = (0, *(step * 10**power for power in range(6) for step in (1, 2, 5)))

_QUOTES = ("\N{LEFT SINGLE QUOTATION MARK}", "\N{RIGHT SINGLE QUOTATION MARK}")
_SHOWN = str.maketrans({"\n": "⏎", "\t": "⇥", "\r": "␍"})


def relayout(figure: go.Figure, layout: dict[str, Any]) -> go.Figure:
    """Update a figure's layout in place; axes, legend and the like are merged.

    The same as `update_layout`, but faster for layouts with many axes, because each part is changed
    outside of the figure.
    """
    for name, change in layout.items():
        if isinstance(change, dict):
            part = figure.layout[name]
            figure.layout[name] = type(part)(part.to_plotly_json()).update(change)
        else:
            figure.layout[name] = change
    return figure


def style(figure: go.Figure, *, x_title: str, y_title: str, height: int = 380) -> go.Figure:
    """Give `figure` the shared look in place; axis titles carry their unit in brackets."""
    axis = {"gridcolor": GRID, "linecolor": LINE, "zeroline": False, "automargin": True}
    layout: dict[str, Any] = {
        "height": height,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 8, "t": 40, "b": 8},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
    }
    for title, axes in ((x_title, figure.select_xaxes()), (y_title, figure.select_yaxes())):
        for figure_axis in axes:
            layout[figure_axis.plotly_name] = axis | {"title": {"standoff": 12, "text": title}}
    return relayout(figure, layout)


def set_title(figure: go.Figure, title: str) -> go.Figure:
    """Put `title` above the plotting area, in line with its left edge, in place."""
    place = {"x": 0, "xref": "paper", "y": 0.98, "yanchor": "top", "font": {"size": 15}}
    return figure.update_layout(title={"text": title} | place)


def without_title(figure: go.Figure) -> go.Figure:
    """Remove the title and its space in place, for a card that has a heading.

    A legend placed for a title moves up even if there is no title.
    """
    layout = figure.layout
    if not layout.title.text:
        if layout.legend.yref == "container" and (layout.legend.y or 1) < 1:
            figure.update_layout(legend_y=1, margin_t=layout.margin.t - TITLE)
        return figure
    figure.update_layout(title_text=None)
    bars = [trace.colorbar for trace in figure.data if trace.type == "heatmap"]
    bars = [bar for bar in bars if bar.yref == "container"]
    if bars:
        for bar in bars:
            bar.y = min(1.0, bar.y + _share(figure, TITLE))
        return figure.update_layout(margin_t=layout.margin.t - TITLE)
    named = [trace for trace in figure.data if trace.showlegend is not False]
    if layout.showlegend is False or (layout.showlegend is None and len(named) < 2):
        return figure.update_layout(margin_t=min(layout.margin.t, BARE))
    if layout.legend.yref == "container":
        figure.update_layout(legend_y=1, margin_t=layout.margin.t - TITLE)
    return figure


def say_if_empty(figure: go.Figure, why: str = "") -> go.Figure:
    """Say in a figure without any number that there is none to draw, and why, in place."""
    if any(map(_has_numbers, figure.data)):
        return figure
    text = why or "Nothing to draw: no value is defined for this selection."
    middle = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}
    return figure.add_annotation(text=text, showarrow=False, **middle)


def _has_numbers(trace: Any) -> bool:
    height = "x" if trace.type == "bar" and trace.orientation == "h" else "y"
    name = next((key for key in ("z", height) if key in trace), "")
    if not name or trace.type == "image":  # a table, or a picture
        return True
    numbers = () if trace[name] is None else np.ravel(trace[name])
    return any(value is not None and value == value for value in numbers)


def is_square(figure: go.Figure) -> bool:
    """Return whether a figure is a single map with square cells."""
    return figure.layout.yaxis.scaleanchor == "x" and any(
        trace.type == "heatmap" for trace in figure.data
    )


def legend_under_title(figure: go.Figure) -> go.Figure:
    """Place the legend below the title, growing towards the plotting area, in place."""
    top = 1 - TITLE / figure.layout.height
    return figure.update_layout(
        legend={"yref": "container", "y": top, "yanchor": "top"}, margin_t=72
    )


def bar_above(figure: go.Figure, unit: str, ticks: list[float], labels: list[str]) -> go.Figure:
    """Put the colour bar of a square map above the map, in place.

    The map may be narrower than the page. The bar is positioned from the figure's edge, not from
    the plotting area, and its unit is an annotation; otherwise Plotly would push the figure's title
    out of sight.
    """
    bar = {
        "tickvals": ticks,
        "ticktext": labels,
        "orientation": "h",
        "thickness": 12,
        "x": 0,
        "xanchor": "left",
        "xpad": 0,
        "yanchor": "top",
        "ypad": 0,
        "yref": "container",
        "y": 1 - _share(figure, BAR),
        "lenmode": "pixels",
        "len": 230,
        "outlinewidth": 0,
    }
    figure.update_traces(colorbar=bar, selector={"type": "heatmap"})
    return unit_above(figure, unit, 50).update_layout(margin_t=100)


def unit_above(figure: go.Figure, unit: str, shift: int) -> go.Figure:
    """Write the unit of a colour bar `shift` pixels above the plotting area, at its left edge."""
    return figure.add_annotation(
        name="unit",
        text=unit,
        showarrow=False,
        xref="paper",
        x=0,
        xanchor="left",
        yref="paper",
        y=1,
        yanchor="bottom",
        yshift=shift,
        font_size=12,
    )


def broken(title: str) -> str:
    """Return an axis title that fits a phone: a long one has its unit on a separate line."""
    return title.replace(" (", "<br>(", 1) if len(title) > MAX_TITLE else title


def few_lines(figure: go.Figure, most: int = 5, *, last: bool = False) -> go.Figure:
    """Show only the first or the last lines, in place; clicks in the legend show the others."""
    lines = list(dict.fromkeys(trace.legendgroup or trace.name for trace in figure.data))
    kept_lines = lines[-most:] if last else lines[:most]
    for trace in figure.data:
        if (trace.legendgroup or trace.name) not in kept_lines:
            trace.visible = "legendonly"
    return figure


def set_height(figure: go.Figure, height: int) -> go.Figure:
    """Change a square map's height in a narrow column, in place. Its colour bar shrinks with it."""
    for trace in figure.select_traces(selector={"type": "heatmap"}):
        bar = trace.colorbar
        trace.update(
            colorbar={
                "y": 1 - BAR / (SHRUNK * height),
                "len": 130,
                "tickvals": bar.tickvals[::2],
                "ticktext": bar.ticktext[::2],
            }
        )
    return figure.update_layout(height=height)


def _share(figure: go.Figure, pixels: float) -> float:
    """Return pixels as a share of a square map's height."""
    return pixels / (SHRUNK * float(figure.layout.height))


def log_ticks(low: float, high: float) -> list[float]:
    """Return ticks of a log axis in [low, high]: 1-2-5 below two decades, else powers of ten."""
    if not 0 < low < high:
        raise ValueError(f"log ticks need 0 < low < high, got low={low:g}, high={high:g}")
    steps = (1, 2, 5) if high / low < 100 else (1,)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    slack = 1 + 1e-9
    ticks = [float(f"{step}e{decade}") for decade in decades for step in steps]
    return [tick for tick in ticks if low / slack <= tick <= high * slack]


def log_axis(low: float, high: float) -> dict[str, Any]:
    """Return Plotly options of a log axis with round ticks in [low, high]."""
    ticks = log_ticks(low, high)
    return {"type": "log", "tickvals": ticks, "ticktext": [number(tick) for tick in ticks]}


def log_offsets(last: int) -> dict[str, Any]:
    """Return Plotly's options of a log axis where offset k stands at k + 1, and ticks read k."""
    ticks = [tick for tick in LOG_OFFSETS if tick <= last]
    texts = [f"{tick}" for tick in ticks]
    return {"type": "log", "tickvals": [tick + 1 for tick in ticks], "ticktext": texts}


def number(value: float) -> str:
    """Return a tick label: plain from 0.001 to below 100 000, else as m×10ⁿ."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return as_printed(f"{value:g}")
    return as_printed(f"{value:.0e}").removeprefix("1×")


def visible(token: str) -> str:
    """Return `token` as plain text, with outer spaces and line breaks made visible."""
    inner = token.strip(" ")
    before, _, after = token.partition(inner) if inner else (token, "", "")
    return "␣" * len(before) + inner.translate(_SHOWN) + "␣" * len(after)


def quoted(token: str) -> str:
    """Return `token` in quotes, with outer spaces and line breaks visible, and markup as it is."""
    return html.escape(visible(token), quote=False).join(_QUOTES)
