"""One stage of attention as a square map: raw scores, masked scores, probabilities, differences.

Small maps are cells with token names; larger ones are sent as pictures.
"""

import math

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from poskernel_core.common.rounding import as_printed
from poskernel_core.plotting.layout import MASKED, bar_above, quoted, set_title, style
from poskernel_core.plotting.maps import IMAGE_CELLS, Span, as_picture, largest
from poskernel_core.plotting.palette import DIVERGING, RED, SCALE

CELLS = 64 * 64  # up to this many cells are drawn one by one, each with its tokens
NAMED = 32  # up to this many rows have their tokens written at the axes
FINE = 300  # more rows than this are finer than the pixels of a page
FEW_LEVELS = 64  # colours of the largest pictures (mostly noise): 0.9 MB instead of 1.3 MB
_TICKS = 10
_TOKEN_TICKS = 13  # up to this many tokens are legible on an axis of 260 pixels

StageMap = Float[np.ndarray, "query key"]
Scale = tuple[str, ...]


def stage_map(
    values: StageMap,
    *,
    title: str,
    first_query: int = 0,
    first_key: int = 0,
    tokens: list[str] | None = None,
    diverging: bool = False,
    span: Span | None = None,
    window: tuple[int, int] | None = None,
    unit: str = "score",
) -> go.Figure:
    """Draw one value per query (y, early ones on top) and key (x), in `unit`; hidden if not finite.

    `values` begin at position `first_query`, `first_key`; `tokens` name the positions from 0 on.
    The colours cover `span` if given, else the 1st to the 99th percentile (probabilities: 0 to the
    largest), made symmetric about 0 if `diverging`. `window` = (start, stop), in positions, is
    outlined.
    """
    values = np.where(np.isfinite(values), values, np.nan)
    low, high = robust_span(values, diverging=diverging) if span is None else span
    scale = DIVERGING if diverging else SCALE
    first = (first_query, first_key)
    if values.size <= CELLS:
        figure = _as_cells(values, (low, high), scale, first, tokens)
    else:
        figure = as_picture(
            np.clip((values - low) / (high - low), 0, 1),
            scale,
            hover="query %{y} → key %{x}<extra></extra>",
            top=first_query,
            left=first_key,
            ends=(low, high),
            levels=FEW_LEVELS if values.size > IMAGE_CELLS else 255,
            # cells smaller than pixels are smoothed: else a diagonal falls between the pixels
            smooth="fast" if max(values.shape) > FINE else False,
        )
    _outline(figure, window, (-first_query, -first_key) if values.size <= CELLS else (0, 0))
    titles = {"x_title": "key position i (tokens)", "y_title": "query position n (tokens)"}
    style(figure, **titles, height=520)
    figure.update_layout(plot_bgcolor=MASKED, showlegend=False)
    square = {"showgrid": False, "constrain": "domain"}
    figure.update_xaxes(constraintoward="left", **square)
    figure.update_yaxes(constraintoward="top", scaleanchor="x", **square)
    bar_above(figure, unit, *_bar_ticks(values, (low, high)))
    return set_title(figure, title)


def robust_span(values: Float[np.ndarray, "*shape"], *, diverging: bool = False) -> Span:
    """Return the values at the ends of the colour scale: see `stage_map`."""
    top = largest(values)
    low, high = (float(end) for end in np.nanpercentile(values, [1, 99]))
    if diverging:
        end = max(-low, high) or float(np.nanmax(np.abs(values))) or 1.0
        return -end, end
    if np.nanmin(values) >= 0 and top <= 1:
        low, high = 0.0, top
    return low, high if high > low else low + 1.0


def _as_cells(
    values: StageMap, span: Span, scale: Scale, first: tuple[int, int], tokens: list[str] | None
) -> go.Figure:
    queries, keys = (_names(start, n, tokens) for start, n in zip(first, values.shape, strict=True))
    figure = go.Figure(
        go.Heatmap(
            z=values.astype(np.float32),
            zmin=span[0],
            zmax=span[1],
            colorscale=scale,
            x=keys,
            y=queries,
            hoverongaps=False,
            hovertemplate="query %{y} → key %{x}: <b>%{z:.3g}</b><extra></extra>",
        )
    )
    figure.update_xaxes(type="category", tickangle=-90 if _named(keys, tokens) else 0)
    figure.update_yaxes(type="category")
    for axis, names, start in (
        (figure.layout.xaxis, keys, first[1]),
        (figure.layout.yaxis, queries, first[0]),
    ):
        at, text = _ticks(names, start, tokens)
        axis.update(tickvals=at, ticktext=text)
        if _named(names, tokens):
            axis.tickfont.size = 10
    rows, columns = values.shape
    figure.update_yaxes(range=[rows - 0.5, -0.5])
    return figure.update_xaxes(range=[-0.5, columns - 0.5])


def _names(start: int, count: int, tokens: list[str] | None) -> list[str]:
    if tokens is None:
        return [f"{at}" for at in range(start, start + count)]
    return [f"{at} {quoted(tokens[at])}" for at in range(start, start + count)]


def _named(names: list[str], tokens: list[str] | None) -> bool:
    return tokens is not None and len(names) <= NAMED


def _ticks(names: list[str], start: int, tokens: list[str] | None) -> tuple[list[int], list[str]]:
    if _named(names, tokens):
        step = math.ceil(len(names) / _TOKEN_TICKS)
        return list(range(0, len(names), step)), names[::step]
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100) if len(names) / s <= _TICKS or s == 100)
    at = [row for row in range(len(names)) if (start + row) % step == 0]
    return at, [f"{start + row}" for row in at]


def _bar_ticks(values: StageMap, span: Span) -> tuple[list[float], list[str]]:
    """Return the bar's ticks and their texts; a sign marks each end that values exceed."""
    ticks = np.linspace(*span, 5)
    labels = [as_printed(f"{tick:.3g}") for tick in ticks]
    slack = 1e-6 * (span[1] - span[0])
    if np.nanmin(values) < span[0] - slack:
        labels[0] = f"≤ {labels[0]}"
    if np.nanmax(values) > span[1] + slack:
        labels[-1] = f"≥ {labels[-1]}"
    return ticks.tolist(), labels


def _outline(figure: go.Figure, window: tuple[int, int] | None, shift: tuple[int, int]) -> None:
    """Outline the zoomed `window` in red with a light edge, legible on every colour."""
    if window is None:
        return
    x0, x1 = (end - 0.5 + shift[1] for end in window)
    y0, y1 = (end - 0.5 + shift[0] for end in window)
    corners = {"x0": x0, "x1": x1, "y0": y0, "y1": y1}
    for colour, width in (("white", 6), (RED, 3)):
        figure.add_shape(type="rect", **corners, line={"color": colour, "width": width})
