"""The browser's grid of heads as a Plotly figure, for files and for a paper."""

import re
import textwrap
from collections import defaultdict
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go

from poskernel_core.common.heads import parse_cell
from poskernel_core.plotting.head_map import add_missing
from poskernel_core.plotting.layout import style
from poskernel_core.plotting.palette import KIND_LOOKS, NO_VALUE, RED, fade
from poskernel_core.plotting.sparklines import heights_of

KNOWN, CORNER, SINK, KERNEL = "★", "◥", "▖", "∿"
SYMBOLS: Final = {
    KIND_LOOKS["local"].glyph: "line-ns-open",
    KIND_LOOKS["slow decay"].glyph: "triangle-sw",
    KIND_LOOKS["uniform"].glyph: "line-ew-open",
    KNOWN: "star",
    CORNER: "triangle-ne",
}
"""Plotly's symbols of the marks in cells; the others are squares."""

BESIDE: Final = {KNOWN: (CORNER, 0.4, -0.4), SINK: (SINK, -0.4, 0.4)}
"""Marks in the corners of cells that show kernels: across and down from the middle."""

ON_HOVER: Final = re.compile(r"[,;] [\w ]+ on hover")


Cell = tuple[int, int, dict[str, Any]]
"""Row, column, and what ``grid_data`` returns for it."""


def grid_map(data: dict[str, Any], selected: str = "") -> go.Figure:
    """Draw cells in order, with marks or kernels; the legend names heads that a mark names."""
    rows = data["rows"]
    shape = layers, heads = len(rows), len(rows[0])
    cells: list[Cell] = [(i, j, cell) for i, row in enumerate(rows) for j, cell in enumerate(row)]
    colours, codes = np.unique(
        [_faded(cell, cell["colour"] or NO_VALUE) for *_, cell in cells], return_inverse=True
    )
    edges = np.linspace(0, 1, len(colours) + 1).tolist()
    figure = go.Figure().add_heatmap(
        z=codes.reshape(shape),
        zmin=-0.5,
        zmax=len(colours) - 0.5,
        colorscale=[[edge, c] for i, c in enumerate(colours) for edge in edges[i : i + 2]],
        showscale=False,
        xgap=1,
        ygap=1,
        customdata=np.reshape([cell["label"] for *_, cell in cells], shape),
        hovertemplate="%{customdata}<extra></extra>",
    )
    missing, names = (
        np.reshape([cell[key] for *_, cell in cells], shape) for key in ("missing", "name")
    )
    add_missing(figure, missing, names)
    _add_marks(figure, cells, heights_of(data["curves"]) if "curves" in data else None)
    _add_glyphs(figure, cells, data["glyphs"])
    if data["legend"]:
        _add_bar(figure, data["legend"], data["legendTitle"])
    at = next(((i, j) for i, j, cell in cells if cell["name"] == selected), None)
    if at is not None:
        ends = {"x0": at[1] - 0.5, "x1": at[1] + 0.5, "y0": at[0] - 0.5, "y1": at[0] + 0.5}
        figure.add_shape(type="rect", **ends, line={"color": RED, "width": 3})
    height = 150 + 40 * len(data["glyphs"]) + layers * max(16, min(44, 660 // layers))
    style(figure, x_title=data["corner"] or "head", y_title="layer", height=height)
    places = list(range(0, heads, 1 if heads <= 16 else 4))
    texts = [data["headers"][place].removeprefix("H") for place in places]
    columns: dict[str, Any] = {"range": [-0.5, heads - 0.5], "tickvals": places, "ticktext": texts}
    figure.update_xaxes(**columns, showgrid=False)
    figure.update_yaxes(range=[layers - 0.5, -0.5], dtick=1 if layers <= 16 else 4, showgrid=False)
    return figure.update_layout(
        legend={"y": 0, "yref": "container", "yanchor": "bottom", "orientation": "v"}
    )


def _add_marks(figure: go.Figure, cells: list[Cell], curves: np.ndarray | None) -> None:
    """Add marks side by side in their cells, or kernels as steps, with marks in corners."""
    marks: dict[str, list[Any]] = defaultdict(list)
    every = np.array([_faded(cell, cell["ink"] or NO_VALUE) for *_, cell in cells])
    if curves is not None:
        row, column, own = (np.array(values)[:, None] for values in zip(*cells, strict=True))
        at = [parse_cell(cell["name"], *curves.shape[:2]) for (cell,) in own]
        heights = np.repeat(curves[tuple(np.transpose(at))], 2, axis=1)
        across = np.repeat(np.linspace(-0.5, 0.5, curves.shape[2] + 1), 2)[1:-1]
        steps = np.stack([column + across, row + 0.47 - 0.92 * heights]).round(3)
        steps = np.pad(steps, ((0, 0), (0, 0), (0, 1)), constant_values=np.nan)
        for ink in np.unique(every):
            look = {"color": ink, "width": 0.8, "simplify": False}
            _add(figure, *steps[:, every == ink].reshape(2, -1), mode="lines", line=look)
    for (i, j, cell), ink in zip(cells, every.tolist(), strict=True):
        for place, mark in enumerate(cell["mark"]):
            beside = (mark, 0.3 * (place - (len(cell["mark"]) - 1) / 2), 0.0)
            if curves is None or mark in BESIDE:
                mark, right, down = beside if curves is None else BESIDE[mark]
                marks[mark].append((j + right, i + down, ink))
    for mark, points in marks.items():
        x, y, inks = zip(*points, strict=True)
        look = {"color": inks, "size": 10 if curves is None else 6}
        _add(figure, x, y, mode="markers", marker=_marker(mark) | look)


def _add_glyphs(figure: go.Figure, cells: list[Cell], glyphs: list[tuple[str, str]]) -> None:
    """Add the legend of the marks."""
    for mark, meaning in glyphs:
        text = ON_HOVER.sub("", meaning)
        if text != meaning and mark != KERNEL:
            known = [cell["name"] for *_, cell in cells if KNOWN in cell["mark"]]
            text = f"{text}: {', '.join(known) or 'none'}"
        entry: dict[str, Any] = {
            "mode": "lines" if mark == KERNEL else "markers",
            "line_color": "#000000",
        }
        name = "<br>".join(textwrap.wrap(text, 80))
        figure.add_scatter(x=[None], y=[None], name=name, marker=_marker(mark), **entry)


def _faded(cell: dict[str, Any], colour: str) -> str:
    return fade(colour, 0.15 if cell["dimmed"] else 1)


def _marker(mark: str) -> dict[str, Any]:
    symbol = SYMBOLS.get(mark, "square")
    line, opacity = symbol.startswith("line"), 1 if mark in SYMBOLS or mark == SINK else 0.15
    look = {"symbol": symbol, "size": 10, "color": "#000000", "opacity": opacity}
    return look | {"line": {"width": 4 * line}}


def _add(figure: go.Figure, x: Any, y: Any, **look: Any) -> None:
    figure.add_scatter(x=x, y=y, hoverinfo="skip", showlegend=False, **look)


def _add_bar(figure: go.Figure, legend: list[tuple[str, str]], unit: str) -> None:
    """Add the bar of the colours, by a marker that is nowhere."""
    shares = np.linspace(0, 1, len(legend)).tolist()
    ticks = [(at, text) for at, (_, text) in zip(shares, legend, strict=True) if text]
    values, texts = zip(*ticks, strict=True)
    figure.add_scatter(
        x=[None],
        y=[None],
        mode="markers",
        showlegend=False,
        marker={
            "color": [0],
            "cmin": 0,
            "cmax": 1,
            "colorscale": [[at, colour] for at, (colour, _) in zip(shares, legend, strict=True)],
            "colorbar": {"title": {"text": unit}, "tickvals": values, "ticktext": texts},
        },
    )
