"""Attention to random tokens: one row with its trend, and the norms of layer 0's outputs."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int

from poskernel_core.plotting.conditions import SHARE, measured
from poskernel_core.plotting.curves import Look, add_curve, look
from poskernel_core.plotting.kernels import FLOOR
from poskernel_core.plotting.layout import (
    MUTED,
    few_lines,
    legend_under_title,
    log_ticks,
    number,
    set_title,
    style,
)
from poskernel_core.plotting.palette import BLUE, VERMILLION

OFF_SCALE = 2.5  # a point this many times higher than all keys of the trend would flatten them
LEGEND = "head: exponent ± 1 s.e., and how far off its power law at most"
PerKey = Float[np.ndarray, " key"]


def trend_figure(
    row: PerKey,
    error: PerKey,
    *,
    slope: tuple[float, float],
    correlation: float,
    title: str,
    first: int = 1,
    log_y: bool = False,
) -> go.Figure:
    """Mean attention from position n = len(row) - 1 to each key, and the line through its trend.

    The trend, `slope` = (value, standard error) per token, leaves out the keys before `first` and
    the query itself: they are grey, and stand at the upper edge with their value where they would
    flatten the rest.
    """
    if row.ndim != 1 or row.shape != error.shape or not len(row):
        raise ValueError(
            f"expected one error for each key, received {[*row.shape]} and {[*error.shape]}"
        )
    query = len(row) - 1
    inside, figure = slice(first, query), go.Figure()
    keys = np.arange(query + 1)
    if query > first:
        add_curve(
            figure,
            keys[inside],
            row[inside],
            error[inside],
            name="mean ± 1 s.e.",
            look=Look(BLUE),
            where="key %{x}",
            floor=FLOOR if log_y else None,
        )
        _add_trend(figure, keys[inside], row[inside], slope, correlation, log_y)
    left_out = [query, *range(min(first, query))]  # the legend shows the first one's mark
    top = np.inf if log_y else _top(row, error, left_out)
    _add_left_out(figure, row, error, left_out, top, log_y)
    scale = ", log scale" if log_y else ""
    style(figure, x_title="key position i (tokens)", y_title=f"{SHARE}{scale}", height=420)
    _row_axes(figure, row, top, log_y)
    return set_title(legend_under_title(figure), title)


def _add_trend(
    figure: go.Figure,
    keys: Int[np.ndarray, " key"],
    row: PerKey,
    slope: tuple[float, float],
    correlation: float,
    log_y: bool,
) -> None:
    """The fitted line over the keys of the trend, through their mean, and how well it fits.

    Keys that a window hides, the zeros before the first that is seen, are no part of it.
    """
    if not np.isfinite(slope[0]):
        return
    seen = slice(int(np.argmax(row != 0)), None)
    keys, row = keys[seen], row[seen]
    line = row.mean() + slope[0] * (keys - keys.mean())
    around = float(((row - row.mean()) ** 2).sum())
    fit = f"R² {1 - float(((row - line) ** 2).sum()) / around:.2f}, " if around > 0 else ""
    ends = slice(None) if log_y else slice(None, None, max(1, len(keys) - 1))
    name = f"slope {measured(*slope)} per token"
    rank = f"{fit}rank correlation {correlation:.2f}".replace("-", "−")
    figure.add_scatter(
        x=keys[ends],
        y=np.where(line > FLOOR, line, np.nan)[ends] if log_y else line[ends],
        mode="lines",
        line={"color": VERMILLION, "width": 2, "dash": "dash"},
        name=f"{name},<br>{rank}",
        hovertemplate=f"{name}<br>{rank}<extra></extra>",
    )


def _top(row: PerKey, error: PerKey, left_out: list[int]) -> float:
    """The upper end of the axis: room for the keys of the trend, and others not far above them."""
    high = row + np.abs(error)
    base = float(np.max(np.delete(high, left_out), initial=0.0))
    ends = high[left_out].tolist()
    near = [end for end in ends if end <= OFF_SCALE * base]
    return 1.12 * float(max([base, *near])) if base > FLOOR else 1.12 * float(max(ends))


def _add_left_out(
    figure: go.Figure, row: PerKey, error: PerKey, keys: list[int], top: float, log_y: bool
) -> None:
    """Keys that the trend leaves out; one above `top` is a triangle below it, with its value."""
    query = len(row) - 1
    high = [row[key] > top for key in keys]
    spread = [None if off else error[key] for key, off in zip(keys, high, strict=True)]
    figure.add_scatter(
        x=keys,
        mode="markers",
        name="left out of the trend",
        error_y={"array": spread},
        y=[
            0.96 * top if off else row[key] if row[key] >= FLOOR or not log_y else np.nan
            for key, off in zip(keys, high, strict=True)
        ],
        marker={
            "color": MUTED,
            "size": 11,
            "line": {"color": MUTED, "width": 2},
            "symbol": ["triangle-up" if off else "circle-open" for off in high],
        },
        customdata=[[row[key], error[key]] for key in keys],
        cliponaxis=False,
        hovertemplate="<b>left out of the trend</b>, key %{x}<br>%{customdata[0]:.3g} "
        "± %{customdata[1]:.2g}<extra></extra>",
    )
    for key, off in zip(keys, high, strict=True):
        if off:
            last = key == query
            figure.add_annotation(
                x=query if last else max(keys[1:]),
                y=0.96 * top,
                text=f"{'query' if last else f'key {key}'}: {row[key]:.3g}",
                showarrow=False,
                xanchor="right" if last else "left",
                xshift=-10 if last else 10,
                yshift=0 if last else -14 * key,
                font_size=12,
            )


def _row_axes(figure: go.Figure, row: PerKey, top: float, log_y: bool) -> None:
    pad = 0.5 + 0.015 * len(row)
    figure.update_xaxes(range=[-pad, len(row) - 1 + pad], dtick=1 if len(row) <= 13 else None)
    if not log_y:
        figure.update_yaxes(range=[0, top])
        return
    positive = row[row >= FLOOR]
    low, high = float(positive.min()), float(positive.max())
    ticks = log_ticks(low / 2, high * 2)
    figure.update_yaxes(type="log", tickvals=ticks, ticktext=[number(tick) for tick in ticks])


def norm_curves(
    tokens: Float[np.ndarray, " pos"],
    norm: Float[np.ndarray, "head pos"],
    error: Float[np.ndarray, "head pos"],
    exponents: Sequence[tuple[float, float]],
    heads: Sequence[int],
    *,
    title: str,
) -> go.Figure:
    """Norm of each head's output against the visible `tokens`, and 1/√tokens, dotted.

    `exponents` are each head's (value, standard error), `heads` their numbers. The legend says how
    far each curve lies off its own power law where it is farthest.
    """
    if norm.ndim != 2 or norm.shape != error.shape or not len(norm) == len(exponents) == len(heads):
        raise ValueError(
            f"expected norm, error and exponent of {len(heads)} heads, received "
            f"{[*norm.shape]}, {[*error.shape]}, {len(exponents)}"
        )
    figure = go.Figure()
    for head, mean, spread, exponent in zip(heads, norm, error, exponents, strict=True):
        power = f"{measured(*exponent)}, {_off_law(tokens, mean, exponent[0])}"
        add_curve(
            figure,
            tokens,
            mean,
            spread,
            look=look(head),
            where="%{x} visible tokens",
            name=f"H{head}: {power if np.any(mean > 0) else 'ablated'}",
            floor=FLOOR,
        )
    marks = {"size": 6, "maxdisplayed": 16}
    figure.update_traces(line_width=1.8, marker=marks, selector={"mode": "lines+markers"})
    few_lines(figure, most=4)
    _add_reference(figure, tokens, norm)
    return _norm_axes(figure, tokens, norm, title)


def _off_law(
    tokens: Float[np.ndarray, " pos"], norm: Float[np.ndarray, " pos"], exponent: float
) -> str:
    """How far a curve lies off its power law at most, position 0 left out as in the fit."""
    with np.errstate(divide="ignore", invalid="ignore"):
        left = np.log(norm[1:]) - exponent * np.log(tokens[1:])
        factor = float(np.exp(np.abs(left - left.mean()).max())) if left.size else np.nan
    if not np.isfinite(factor):
        return "no power law"
    if factor >= 2:
        return f"off ≤ {factor:.2g}×"
    percent = 100 * (factor - 1)
    return f"off ≤ {percent:.0f} %" if percent >= 1 else "off < 1 %"


def _add_reference(
    figure: go.Figure, tokens: Float[np.ndarray, " pos"], norm: Float[np.ndarray, "head pos"]
) -> None:
    """1/√tokens, through the geometric mean of the heads at position 1."""
    at = norm[:, min(1, norm.shape[1] - 1)]
    if not (at > 0).any():
        return
    through = np.exp(np.log(at[at > 0]).mean()) * np.sqrt(tokens[min(1, len(tokens) - 1)])
    figure.add_scatter(
        x=tokens,
        y=through / np.sqrt(tokens),
        mode="lines",
        name="1/√tokens: −0.5",
        line={"color": MUTED, "width": 2.5, "dash": "dot"},
        hovertemplate="1/√tokens<extra></extra>",
    )


def _norm_axes(
    figure: go.Figure,
    tokens: Float[np.ndarray, " pos"],
    norm: Float[np.ndarray, "head pos"],
    title: str,
) -> go.Figure:
    """Two log axes; the figure grows with its legend."""
    lines = -(-(len(norm) + 1) // 2)
    style(
        figure,
        x_title="visible tokens (log scale)",
        y_title="length of z (log scale)",
        height=380 + 26 * lines,
    )
    x_ticks = log_ticks(1, max(float(tokens[-1]), 2.0))
    figure.update_xaxes(type="log", tickvals=x_ticks, ticktext=[number(tick) for tick in x_ticks])
    positive = norm[norm > FLOOR]
    if positive.size:
        ticks = log_ticks(float(positive.min()) / 2, float(positive.max()) * 2)
        figure.update_yaxes(tickvals=ticks, ticktext=[number(tick) for tick in ticks])
    figure.update_yaxes(type="log")
    figure.update_layout(
        legend_title={"text": LEGEND, "side": "top", "font_size": 12},
        legend_maxheight=1000,  # on a phone, one head a line: it shall not scroll
    )
    return set_title(legend_under_title(figure), title)
