"""Kernels and attention as colour maps: query by key, or one row folded to a square."""

import base64
import io
import math
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int, UInt8
from PIL import Image

from pages.parts.figures.kernels import FLOOR
from pages.parts.figures.layout import MASKED, log_ticks, number, set_title, style
from pages.parts.figures.palette import SCALE, log_position, scale_rgb

IMAGE_CELLS = 200_000  # beyond this many cells a map travels as a PNG: 0.3 s instead of 5 s

Span = tuple[float, float]


def kernel_map(
    kernel: Float[np.ndarray, "query_row key"],
    queries: Int[np.ndarray, " query_row"],
    *,
    title: str,
    log_colour: bool = True,
) -> go.Figure:
    """Probability of each key (x) from each query (y, early ones on top); NaN = masked, blank.

    Rows are equally high and carry their true position, so `queries` may be unevenly spaced.
    """
    if len(queries) != len(kernel):
        raise ValueError(f"expected {len(kernel)} queries, one per row, received {len(queries)}")
    span = _span(kernel, log_colour)
    draw = _map_as_image if kernel.size > IMAGE_CELLS else _map_as_cells
    figure = draw(kernel, queries, span, log_colour)
    style(
        figure, height=480, x_title="key position i (tokens)", y_title="query position n (tokens)"
    )
    figure.update_layout(plot_bgcolor=MASKED)
    figure.update_xaxes(showgrid=False)
    figure.update_yaxes(showgrid=False)
    return set_title(figure, title)


def folded_square(
    row: Float[np.ndarray, " n_plus_1"], *, title: str, log_colour: bool = True
) -> go.Figure:
    """One row folded to a near-square (20 wide for n = 400), read like text; NaN = skipped."""
    width = max(1, round(math.sqrt(len(row) - 1)))
    height = math.ceil(len(row) / width)
    folded = np.full(height * width, np.nan)
    folded[: len(row)] = row
    cells = folded.reshape(height, width)
    key = np.arange(height * width).reshape(height, width)
    span = _span(row, log_colour)
    figure = go.Figure(
        go.Heatmap(
            z=_shade(cells, span, log_colour), zmin=0, zmax=1, colorscale=SCALE, xgap=1, ygap=1,
            colorbar=_colour_bar(span, log_colour), hoverongaps=False,
            customdata=np.stack([key, cells], axis=-1),
            hovertemplate="key %{customdata[0]:d}<br>%{customdata[1]:.3g}<extra></extra>",
        )
    )  # fmt: skip
    style(figure, height=420, x_title="+ key within the row (tokens)",
          y_title="first key of the row (position, tokens)")  # fmt: skip
    figure.update_layout(plot_bgcolor=MASKED)
    rows = np.arange(0, height, max(1, height // 5))
    figure.update_xaxes(
        showgrid=False, constrain="domain", constraintoward="left", range=[-0.5, width - 0.5]
    )
    figure.update_yaxes(
        showgrid=False, scaleanchor="x", constrain="domain", range=[height - 0.5, -0.5],
        tickvals=rows, ticktext=[f"{first}" for first in rows * width],
    )  # fmt: skip
    return set_title(figure, title)


def _map_as_cells(
    kernel: Float[np.ndarray, "query_row key"],
    queries: Int[np.ndarray, " query_row"],
    span: Span,
    log_colour: bool,
) -> go.Figure:
    figure = go.Figure(
        go.Heatmap(
            z=_shade(kernel, span, log_colour).astype(np.float32), zmin=0, zmax=1,
            y=[f"{query}" for query in queries], colorscale=SCALE, hoverongaps=False,
            colorbar=_colour_bar(span, log_colour), customdata=kernel.astype(np.float32),
            hovertemplate="query %{y}<br>key %{x}<br>%{customdata:.3g}<extra></extra>",
        )
    )  # fmt: skip
    return figure.update_yaxes(type="category", autorange="reversed", nticks=12)


def _map_as_image(
    kernel: Float[np.ndarray, "query_row key"],
    queries: Int[np.ndarray, " query_row"],
    span: Span,
    log_colour: bool,
) -> go.Figure:
    """The map as a palette PNG in data coordinates; hover tells the key, and the query if even."""
    even = bool((np.diff(queries) == 1).all())
    picture = picture_source(_shade(kernel, span, log_colour))
    top = int(queries[0]) if even else 0
    hover = ("query %{y}<br>" if even else "") + "key %{x}<extra></extra>"
    rows, keys = kernel.shape
    figure = go.Figure(go.Image(source=picture, y0=top, hovertemplate=hover))
    bar = {"color": [0.0], "cmin": 0, "cmax": 1, "colorscale": SCALE, "showscale": True}
    bar["colorbar"] = _colour_bar(span, log_colour)
    figure.add_scatter(x=[None], y=[None], mode="markers", marker=bar, hoverinfo="skip")
    figure.update_layout(showlegend=False)
    figure.update_xaxes(range=[-0.5, keys - 0.5], constrain="domain")
    figure.update_yaxes(range=[top + rows - 0.5, top - 0.5], constrain="domain", scaleanchor=False)
    if not even:
        at = np.arange(0, rows, max(1, rows // 10))
        figure.update_yaxes(tickvals=at, ticktext=[f"{query}" for query in queries[at]])
    return figure


def picture_source(
    shade: Float[np.ndarray, "row column"], scale: tuple[str, ...] = SCALE, levels: int = 255
) -> str:
    """`shade` as what a `go.Image` shows: a PNG of so many colour levels in a data address."""
    return f"data:image/png;base64,{base64.b64encode(png(shade, scale, levels)).decode()}"


def png(
    shade: Float[np.ndarray, "row column"], scale: tuple[str, ...] = SCALE, levels: int = 255
) -> bytes:
    """`shade` in [0, 1] as a palette PNG, one pixel a cell; NaN is transparent (entry 0)."""
    index = np.where(np.isnan(shade), 0, 1 + np.round(np.nan_to_num(shade) * (levels - 1)))
    colours: UInt8[np.ndarray, "colour 3"] = scale_rgb(np.linspace(0, 1, levels), scale)
    image = Image.fromarray(index.astype(np.uint8))
    image.putpalette(bytes(3) + colours.tobytes())
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", transparency=0)
    return buffer.getvalue()


def _span(values: Float[np.ndarray, "*shape"], log_colour: bool) -> Span:
    """The values that the ends of the colour scale stand for."""
    if np.isnan(values).all():
        raise ValueError(f"nothing to draw: all {values.size} values are masked")
    high = float(np.nanmax(values))
    low = max(FLOOR, float(np.nanmin(values))) if log_colour else 0.0
    return low, high if high > low else low * 1.01 + FLOOR


def _shade(
    values: Float[np.ndarray, "*shape"], span: Span, log_colour: bool
) -> Float[np.ndarray, "*shape"]:
    """Place on the colour scale, 0 to 1; NaN stays NaN."""
    low, high = span
    return log_position(values, low, high) if log_colour else (values - low) / (high - low)


def _colour_bar(span: Span, log_colour: bool) -> dict[str, Any]:
    """A bar whose ticks are probabilities."""
    ticks = log_ticks(*span) if log_colour else list(np.linspace(*span, 5))
    labels = [number(tick) if log_colour else f"{tick:.2g}" for tick in ticks]
    if log_colour and ticks and ticks[0] == FLOOR:
        labels[0] = f"≤ {labels[0]}"
    return {
        "title": {"text": "probability" + ("<br>(log scale)" if log_colour else "")},
        "tickvals": _shade(np.array(ticks, dtype=float), span, log_colour),
        "ticktext": labels,
        "thickness": 14,
        "outlinewidth": 0,
    }
