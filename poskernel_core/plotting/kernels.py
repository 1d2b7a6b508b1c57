"""Kernels and attention as curves over the offset n - i: one head, or a page of small panels."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int

from poskernel_core.plotting.layout import log_ticks, number, relayout, style
from poskernel_core.plotting.palette import BLUE, VERMILLION, fade

FLOOR = 1e-6  # probabilities are drawn no lower than this on a log axis; hover shows the true value
_LOG_OFFSETS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000)

PerOffset = Float[np.ndarray, " k"]


def kernel_curve(
    offset: Int[np.ndarray, " k"],
    kernel: PerOffset,
    low: PerOffset,
    high: PerOffset,
    observed: PerOffset | None,
    *,
    log_x: bool = False,
    log_y: bool = False,
) -> go.Figure:
    """The positional kernel K over `offset` (tokens), with its spread over queries.

    `kernel` is the mean over queries, `low` and `high` the 10th and 90th percentile, `observed` the
    mean attention; all are probabilities per token.
    """
    hover = "K %{customdata[1]:.3g}<br>10–90 % %{customdata[2]:.3g} – %{customdata[3]:.3g}"
    columns = [offset, kernel, low, high]
    if observed is not None:
        hover += "<br>observed %{customdata[4]:.3g}"
        columns.append(observed)
    figure = _banded(
        columns,
        _HOVER_OFFSET + hover,
        "kernel K (mean)",
        "10–90 % of queries",
        log_x,
        log_y,
    )
    if observed is not None:
        dash = {"color": VERMILLION, "width": 2, "dash": "dash"}
        figure.add_scatter(
            x=_shown_x(offset, log_x),
            y=_shown_y(observed, log_y),
            mode="lines",
            line=dash,
            name="observed attention (mean)",
            hoverinfo="skip",
        )
    return _offset_axes(figure, columns, "offset n − i", log_x, log_y)


def profile_curve(
    offset: Int[np.ndarray, " k"],
    profile: PerOffset,
    low: PerOffset,
    high: PerOffset,
    *,
    log_x: bool = False,
    log_y: bool = False,
) -> go.Figure:
    """Mean attention P(k) to the token k = `offset` back, and one standard error either way."""
    hover = "P %{customdata[1]:.3g}<br>± 1 s.e. %{customdata[2]:.3g} – %{customdata[3]:.3g}"
    columns = [offset, profile, low, high]
    figure = _banded(
        columns, _HOVER_OFFSET + hover, "mean attention P(k)", "± 1 s.e.", log_x, log_y
    )
    return _offset_axes(figure, columns, "offset k = n − i", log_x, log_y)


_HOVER_OFFSET = "<b>offset %{customdata[0]:d}</b><br>"


def _banded(
    columns: list[np.ndarray], hover: str, name: str, band_name: str, log_x: bool, log_y: bool
) -> go.Figure:
    """A mean line over its band, from `columns` = offset, mean, low, high, ... (each [k])."""
    offset, mean, low, high = columns[:4]
    x = _shown_x(offset, log_x)
    edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "legendgroup": "band"}
    figure = go.Figure()
    figure.add_scatter(x=x, y=_shown_y(low, log_y), showlegend=False, **edge)
    figure.add_scatter(
        x=x,
        y=_shown_y(high, log_y),
        name=band_name,
        fill="tonexty",
        fillcolor=fade(BLUE, 0.32),
        **edge,
    )
    figure.add_scatter(
        x=x,
        y=_shown_y(mean, log_y),
        name=name,
        mode="lines",
        line={"color": BLUE, "width": 2.5},
        customdata=np.stack(columns, axis=-1),
        hovertemplate=hover + "<extra></extra>",
    )
    return figure


def _offset_axes(
    figure: go.Figure, columns: list[np.ndarray], what: str, log_x: bool, log_y: bool
) -> go.Figure:
    """Label the axes; on a log x-axis the points lie at offset + 1, the ticks show the offset."""
    offset = columns[0]
    x_title = f"{what} (tokens{', log spacing' if log_x else ''})"
    y_title = f"probability per token{' (log scale)' if log_y else ''}"
    style(figure, x_title=x_title, y_title=y_title)
    axes: dict[str, Any] = {
        "hovermode": "x unified",
        "yaxis": _log_probability(columns[1:]) if log_y else {"rangemode": "tozero"},
    }
    if log_x:
        ticks = [tick for tick in _LOG_OFFSETS if offset.min() <= tick <= offset.max()]
        axes["xaxis"] = {
            "type": "log",
            "tickvals": [tick + 1 for tick in ticks],
            "ticktext": [f"{t}" for t in ticks],
        }
    # the title of the hover would be x, which is offset + 1 on a log axis
    return relayout(figure, axes).update_xaxes(unifiedhovertitle_text="probability per token")


def _log_probability(curves: list[PerOffset]) -> dict[str, Any]:
    """A log y-axis over `curves`; where values lie below the floor, its lowest tick says so."""
    low, high = (float(end([end(curve) for curve in curves])) for end in (np.nanmin, np.nanmax))
    ticks = log_ticks(max(low, FLOOR), max(high, 2 * FLOOR))
    labels = [number(tick) for tick in ticks]
    if low < FLOOR:
        labels[0] = f"≤ {labels[0]}"
    return {"type": "log", "tickvals": ticks, "ticktext": labels}


def _shown_x(offset: Int[np.ndarray, " k"], log_x: bool) -> Int[np.ndarray, " k"]:
    return offset + 1 if log_x else offset


def _shown_y(probability: PerOffset, log_y: bool) -> PerOffset:
    return np.maximum(probability, FLOOR) if log_y else probability
