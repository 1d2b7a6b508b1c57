"""Attention over random tokens: one row with its trend, and the norms of layer 0's outputs."""

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int

from poskernel_core.common.result import Result
from poskernel_core.common.rounding import as_printed
from poskernel_core.plotting.conditions import measured
from poskernel_core.plotting.curves import Look, add_curve, look
from poskernel_core.plotting.layout import (
    FLOOR,
    MUTED,
    SHARE,
    few_lines,
    legend_under_title,
    log_axis,
    style,
)
from poskernel_core.plotting.palette import BLUE, VERMILLION

OFF_SCALE = 2.5  # points this many times higher than the trend's keys are cut off
LEGEND = "head: exponent ± 1 s.e., and how far off its power law at most"
PerKey = Float[np.ndarray, " key"]


def row_with_trend(result: Result, log_y: bool = False) -> go.Figure:
    """Draw a head's mean attention from one position to each key, and the fitted trend.

    The trend leaves out the first keys and the query itself, which are grey. Where these points
    would flatten the rest, they are drawn at the upper edge, with their value.
    """
    query = result.chosen["query"]
    row, error = (part["pattern"][: query + 1] for part in (result.values, result.errors))
    first, keys, figure = int(result.params["trend_from"]), np.arange(query + 1), go.Figure()
    if query > first:
        inside = slice(first, query)
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
        slope = float(result.values["slope"]), float(result.errors["slope"])
        correlation = float(result.values["rank_correlation"])
        _add_trend(figure, keys[inside], row[inside], slope, correlation, log_y)
    left_out = [query, *range(min(first, query))]  # the legend shows the first one's mark
    top = np.inf if log_y else _top(row, error, left_out)
    _add_left_out(figure, row, error, left_out, top, log_y)
    scale = ", log scale" if log_y else ""
    style(figure, x_title="key position i (tokens)", y_title=f"{SHARE}{scale}", height=420)
    _row_axes(figure, row, top, log_y)
    return legend_under_title(figure)


def explained(keys: Int[np.ndarray, " key"], row: PerKey, slope: float) -> float:
    """Return the share of a row's variance that its line explains (R²); NaN for an even row."""
    _, row, line = _line(keys, row, slope)
    around = float(((row - row.mean()) ** 2).sum())
    return 1 - float(((row - line) ** 2).sum()) / around if around > 0 else float("nan")


def _line(
    keys: Int[np.ndarray, " key"], row: PerKey, slope: float
) -> tuple[Int[np.ndarray, " seen"], np.ndarray, np.ndarray]:
    """Return keys that are not hidden by a window, their attention, and the line."""
    seen = slice(int(np.argmax(row != 0)), None)
    keys, row = keys[seen], row[seen]
    return keys, row, row.mean() + slope * (keys - keys.mean())


def _add_trend(
    figure: go.Figure,
    keys: Int[np.ndarray, " key"],
    row: PerKey,
    slope: tuple[float, ...],
    correlation: float,
    log_y: bool,
) -> None:
    """Draw the fitted line over the keys of the trend, and how well it fits."""
    if not np.isfinite(slope[0]):
        return
    keys, row, line = _line(keys, row, slope[0])
    share = explained(keys, row, slope[0])
    fit = "" if np.isnan(share) else f"R² {as_printed(f'{share:.2f}')}, "
    ends = slice(None) if log_y else slice(None, None, max(1, len(keys) - 1))
    name = f"slope {measured(*slope)} per token"
    rank = f"{fit}rank correlation {as_printed(f'{correlation:.2f}')}"
    figure.add_scatter(
        x=keys[ends],
        y=np.where(line > FLOOR, line, np.nan)[ends] if log_y else line[ends],
        mode="lines",
        line={"color": VERMILLION, "width": 2, "dash": "dash"},
        name=f"{name},<br>{rank}",
        hovertemplate=f"{name}<br>{rank}<extra></extra>",
    )


def _top(row: PerKey, error: PerKey, left_out: list[int]) -> float:
    """Return the upper end of the axis: above the trend's keys, and above others near them."""
    high = row + np.abs(error)
    base = float(np.max(np.delete(high, left_out), initial=0.0))
    ends = high[left_out].tolist()
    near = [end for end in ends if end <= OFF_SCALE * base]
    return 1.12 * float(max([base, *near])) if base > FLOOR else 1.12 * float(max(ends))


def _add_left_out(
    figure: go.Figure, row: PerKey, error: PerKey, keys: list[int], top: float, log_y: bool
) -> None:
    """Draw the keys that the trend leaves out; those above `top` as triangles with their value."""
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
    figure.update_yaxes(**log_axis(float(positive.min()) / 2, float(positive.max()) * 2))


def norms(result: Result) -> go.Figure:
    """Draw the norms of layer 0's head outputs against the visible tokens, and 1/√tokens, dotted.

    The legend gives each curve's largest deviation from its fitted power law.
    """
    norm, tokens = result.values["norm"], result.values["visible_keys"].astype(float)
    numbers = [
        part[name] for name in ("norm", "norm_exponent") for part in (result.values, result.errors)
    ]
    figure = go.Figure()
    for head, (row, error, *power) in enumerate(zip(*numbers, strict=True)):
        text = f"{measured(*power)}, {_off_law(tokens, row, power[0])}"
        add_curve(
            figure,
            tokens,
            row,
            error,
            look=look(head),
            where="%{x} visible tokens",
            name=f"H{head}: {text if np.any(row > 0) else 'ablated'}",
            floor=FLOOR,
        )
    marks = {"size": 6, "maxdisplayed": 16}
    figure.update_traces(line_width=1.8, marker=marks, selector={"mode": "lines+markers"})
    few_lines(figure, most=4)
    _add_reference(figure, tokens, norm)
    return _norm_axes(figure, tokens, norm)


def _off_law(
    tokens: Float[np.ndarray, " pos"], norm: Float[np.ndarray, " pos"], exponent: float
) -> str:
    """Return a curve's largest deviation from its power law, without position 0, as in the fit."""
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
    """Draw 1/√tokens through the geometric mean of the heads at position 1."""
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
    figure: go.Figure, tokens: Float[np.ndarray, " pos"], norm: Float[np.ndarray, "head pos"]
) -> go.Figure:
    """Set two log axes; the figure grows with its legend."""
    lines = -(-(len(norm) + 1) // 2)
    style(
        figure,
        x_title="visible tokens (log scale)",
        y_title="length of z (log scale)",
        height=380 + 26 * lines,
    )
    figure.update_xaxes(**log_axis(1, max(float(tokens[-1]), 2.0)))
    positive = norm[norm > FLOOR]
    if positive.size:
        figure.update_yaxes(**log_axis(float(positive.min()) / 2, float(positive.max()) * 2))
    figure.update_yaxes(type="log")
    figure.update_layout(
        legend_title={"text": LEGEND, "side": "top", "font_size": 12},
        legend_maxheight=1000,  # on a phone, with one head per line, the legend must not scroll
    )
    return legend_under_title(figure)
