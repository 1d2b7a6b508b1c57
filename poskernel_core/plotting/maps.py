"""Kernels and attention as colour maps: query by key, or one row folded to a square."""

import base64
import io
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int, UInt8
from PIL import Image

from poskernel_core.plotting.layout import (
    FLOOR,
    MASKED,
    bar_above,
    log_ticks,
    number,
    set_title,
    style,
)
from poskernel_core.plotting.palette import DIVERGING, NIGHT, SCALE, log_position, scale_rgb

MAX_TICKS = 12
IMAGE_CELLS = 200_000  # larger maps are sent as PNG: 0.3 s instead of 5 s

Span = tuple[float, float]


@dataclass(frozen=True)
class Colours:
    """A colour scale and its bar.

    Attributes:
        low, high: the values at the ends of the scale.
        scale: colours from low to high.
        log: whether the scale is logarithmic; one that begins below 0 is on both sides of 0, and
            linear between.
        unit: shown above the bar.
    """

    low: float
    high: float
    scale: tuple[str, ...]
    log: bool
    unit: str

    def share(self, values: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """Return places on the scale, 0 to 1; NaN stays NaN."""
        if self.log and self.low < 0:
            bent = np.arcsinh(values / FLOOR) / np.arcsinh(self.high / FLOOR)
            return np.clip((1 + bent) / 2, 0, 1)
        if self.log:
            return log_position(values, self.low, self.high)
        return np.clip((values - self.low) / (self.high - self.low), 0, 1)

    def ticks(self) -> tuple[list[float], list[str]]:
        """Return the bar's ticks, 0 to 1, and their labels."""
        if self.log and self.low < 0:
            some = [tick for tick in (1e-4, 1e-2) if 40 * tick < self.high] + [self.high]
            at = np.array([*(-tick for tick in reversed(some)), 0, *some])
            return self.share(at).tolist(), [number(float(f"{tick:.1g}")) for tick in at]
        if not self.log:
            ends = np.linspace(self.low, self.high, 5)
            return [0, 0.25, 0.5, 0.75, 1], [number(float(f"{tick:.2g}")) for tick in ends]
        ticks = log_ticks(self.low, self.high)
        labels = [number(tick) for tick in ticks]
        if ticks and ticks[0] == FLOOR:
            labels[0] = f"≤ {labels[0]}"
        return self.share(np.array(ticks, dtype=float)).tolist(), labels


def probability_colours(*values: Float[np.ndarray, "..."]) -> Colours:
    """Return one logarithmic scale for all `values`, at least a factor of ten wide.

    Nearly equal values thus have nearly equal colours.
    """
    high = max(largest(array) for array in values)
    low = max(FLOOR, min(float(np.nanmin(array)) for array in values))
    low, high = max(FLOOR / 10, min(low, high / 10)), max(high, FLOOR)
    return Colours(low, high, SCALE, log=True, unit="probability (log scale)")


def difference_colours(
    difference: Float[np.ndarray, "..."], *of: Float[np.ndarray, "..."]
) -> Colours:
    """Return a log scale symmetric about 0, so that most cells have a colour.

    Its ends are at least a tenth of the largest in `of`.
    """
    reach = max(largest(np.abs(difference)), 0.1 * max(largest(array) for array in of), FLOOR)
    return Colours(-reach, reach, DIVERGING, log=True, unit="kernel − observed (log scale)")


def largest(values: Float[np.ndarray, "..."]) -> float:
    """Return the largest value that is not NaN; raise ValueError if there is none."""
    if np.isnan(values).all():
        raise ValueError(f"nothing to draw: all {values.size} values are masked")
    return float(np.nanmax(values))


def kernel_map(
    kernel: Float[np.ndarray, "query_row key"],
    queries: Int[np.ndarray, " query_row"],
    *,
    title: str,
    colours: Colours | None = None,
) -> go.Figure:
    """Draw the value of each key (x) from each query (y, early ones on top); NaN: masked, blank.

    Rows are equally high and labelled with their position, so `queries` may be unevenly spaced.
    Without `colours`, values are probabilities on a separate logarithmic scale.
    """
    colours = colours or probability_colours(kernel)
    draw = _map_as_image if kernel.size > IMAGE_CELLS else _map_as_cells
    figure = draw(kernel, queries, colours)
    titles = {"x_title": "key position i (tokens)", "y_title": "query position n (tokens)"}
    style(figure, height=480, **titles)
    figure.update_layout(plot_bgcolor=MASKED)
    figure.update_xaxes(showgrid=False)
    figure.update_yaxes(showgrid=False)
    bar_above(figure, colours.unit, *colours.ticks())
    return set_title(figure, title)


def _map_as_cells(
    kernel: Float[np.ndarray, "query_row key"],
    queries: Int[np.ndarray, " query_row"],
    colours: Colours,
) -> go.Figure:
    figure = go.Figure(
        go.Heatmap(
            z=colours.share(kernel).astype(np.float32),
            zmin=0,
            zmax=1,
            colorscale=colours.scale,
            y=[f"{query}" for query in queries],
            hoverongaps=False,
            customdata=kernel.astype(np.float32),
            hovertemplate="query %{y}<br>key %{x}<br>%{customdata:.3g}<extra></extra>",
        )
    )
    ticks = [f"{query}" for query in _even_ticks(queries)]
    return figure.update_yaxes(
        type="category", autorange="reversed", tickvals=ticks, ticktext=ticks
    )


def _even_ticks(queries: Int[np.ndarray, " query_row"]) -> Int[np.ndarray, " tick"]:
    """Return the queries with a tick: evenly spaced if most rows are evenly spaced.

    An extra row between them, such as that of the chosen query, moves no tick.
    """
    rows = -(-len(queries) // MAX_TICKS)
    usual = rows * int(np.median(np.diff(queries, append=queries[-1:] + 1)))
    even = np.arange(queries[0], queries[-1] + 1, max(1, usual))
    ticks = even[np.isin(even, queries)]
    return ticks if 2 * len(ticks) > len(even) else queries[::rows]


def _map_as_image(
    kernel: Float[np.ndarray, "query_row key"],
    queries: Int[np.ndarray, " query_row"],
    colours: Colours,
) -> go.Figure:
    """Draw the map as a picture; hover shows the key, and the query if rows are evenly spaced."""
    even = bool((np.diff(queries) == 1).all())
    top = int(queries[0]) if even else 0
    hover = ("query %{y}<br>" if even else "") + "key %{x}<extra></extra>"
    figure = as_picture(colours.share(kernel), colours.scale, hover=hover, top=top)
    figure.update_xaxes(constrain="domain")
    figure.update_yaxes(constrain="domain", scaleanchor=False)
    if not even:
        ticks = _even_ticks(queries)
        at = np.searchsorted(queries, ticks)
        figure.update_yaxes(tickvals=at, ticktext=[f"{query}" for query in ticks])
    return figure


def as_picture(
    shade: Float[np.ndarray, "row column"],
    scale: tuple[str, ...],
    *,
    hover: str,
    top: int = 0,
    left: int = 0,
    ends: Span = (0, 1),
    levels: int = 255,
    smooth: str | bool | None = None,
) -> go.Figure:
    """Draw `shade` in [0, 1] as a palette PNG, its first cell at `top` and `left`.

    A heat map of one cell adds the colour bar from `ends[0]` to `ends[1]`.
    """
    source, look = picture_source(shade, scale, levels), {"hovertemplate": hover}
    figure = go.Figure(go.Image(source=source, x0=left, y0=top, zsmooth=smooth, **look))
    row, column = np.argwhere(np.isfinite(shade))[0]
    figure.add_heatmap(
        z=[[ends[0] + (ends[1] - ends[0]) * shade[row, column]]],
        x=[left + column],
        y=[top + row],
        zmin=ends[0],
        zmax=ends[1],
        colorscale=scale,
        **look,
    )
    rows, columns = shade.shape
    figure.update_yaxes(range=[top + rows - 0.5, top - 0.5])
    return figure.update_xaxes(range=[left - 0.5, left + columns - 0.5])


def on_dark(figure: go.Figure) -> go.Figure:
    """Give maps of differences the scale whose 0 is a dark page, in place."""
    parts = [trace if "colorscale" in trace else trace.marker for trace in figure.data
             if "colorscale" in trace or "marker" in trace]  # fmt: skip
    changed = [part for part in parts if "colorscale" in part
               and tuple(colour for _, colour in part.colorscale or ()) == DIVERGING]  # fmt: skip
    for part in changed:
        part.colorscale = NIGHT
    for picture in figure.select_traces({"type": "image"} if changed else {"type": ""}):
        data = base64.b64decode(picture.source.partition(",")[2])
        image = Image.open(io.BytesIO(data))
        levels = len(image.getpalette() or ()) // 3 - 1
        shades = scale_rgb(np.linspace(0, 1, levels), NIGHT)
        image.putpalette(bytes(3) + shades.tobytes())
        picture.source = _as_source(image)
    return figure


def picture_source(
    shade: Float[np.ndarray, "row column"], scale: tuple[str, ...] = SCALE, levels: int = 255
) -> str:
    """Return `shade` in [0, 1] as the source of a `go.Image`: a PNG with `levels` colours.

    A cell is a pixel; NaN is transparent.
    """
    index = np.where(np.isnan(shade), 0, 1 + np.round(np.nan_to_num(shade) * (levels - 1)))
    colours: UInt8[np.ndarray, "colour 3"] = scale_rgb(np.linspace(0, 1, levels), scale)
    image = Image.fromarray(index.astype(np.uint8))
    image.putpalette(bytes(3) + colours.tobytes())
    return _as_source(image)


def _as_source(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", transparency=0)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
