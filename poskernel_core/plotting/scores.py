"""Raw scores around the query: the tangent of the helix, and the kink at the current token."""

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int

from poskernel_core.common.rounding import as_printed
from poskernel_core.plotting.layout import (
    LINE,
    MASKED,
    MUTED,
    few_lines,
    legend_under_title,
    set_title,
    style,
)
from poskernel_core.plotting.palette import BLUE, GREEN, PURPLE, VERMILLION, fade

OFFSET = "offset k = n − i (tokens), future keys < 0"
HIDDEN = 2
"""Parts of a score that the reader has to ask for: five lines at once are a tangle."""

Band = Float[np.ndarray, " band"]
Offsets = Int[np.ndarray, " band"]


def tangent_figure(
    offsets: Offsets,
    score: Band,
    tangent: Band,
    radial: Band,
    rest: Band,
    observed: Band | None,
    *,
    title: str,
) -> go.Figure:
    """Scores over `offsets` k = n - i: the past lies to the right, the future to the left of 0.

    `score` is that of the positions alone and the sum of its `tangent`, `radial` and `rest` parts;
    `observed` is the raw score in texts. Each is drawn relative to its own mean over the band. The
    radial part and the rest are hidden until their names in the legend are clicked, unless they
    vary more than the tangent part does.
    """
    figure = go.Figure()
    for name, part, colour, dash, width in (
        ("third direction and rest", rest, PURPLE, "dot", 1.8),
        ("radial part", radial, GREEN, "dashdot", 1.8),
        ("tangent part", tangent, VERMILLION, "dash", 2.2),
        ("position only", score, BLUE, "solid", 3),
    ):
        line = {"color": colour, "dash": dash, "width": width}
        _add(figure, name, offsets, part, mode="lines", line=line)
    if observed is not None:
        _add(
            figure,
            "raw score in texts",
            offsets,
            observed,
            mode="lines+markers",
            line={"color": MUTED, "width": 1},
            marker={"color": MUTED, "size": 7, "symbol": "circle-open", "line_width": 2},
        )
    style(
        figure,
        x_title=OFFSET,
        y_title="score − its mean (natural log of attention)",
        height=420,
    )
    figure.update_layout(hovermode="x unified", legend_traceorder="reversed")
    _shade_future(figure, offsets)
    few_lines(figure, len(figure.data) - HIDDEN, last=True)
    for trace, part in zip(figure.data, (rest, radial), strict=False):
        if _span(part) > _span(tangent):
            trace.visible = True
    return set_title(legend_under_title(figure), title)


def _span(part: Band) -> float:
    return float(np.nanmax(part) - np.nanmin(part))


def score_profile_figure(
    offsets: Offsets, mean: Band, error: Band, *, title: str, position: Band | None = None
) -> go.Figure:
    """Mean raw score over `offsets` k = n - i, +- 1 standard error; k = 0 and 1 against the line.

    Scores are drawn as they come, relative to a mean that the caller took off. The straight line
    runs through k = -1 and k = 2, the neighbours of the two, so `offsets` must hold -1 to 2.
    `position` is the part of the score that position alone explains.
    """
    _check(offsets, mean)
    _check(offsets, error)
    missing = sorted({-1, 0, 1, 2} - set(offsets.tolist()))
    if missing:
        raise ValueError(f"the kink needs offsets -1 to 2, {missing} are missing")
    at = {k: float(mean[offsets == k][0]) for k in (-1, 0, 1, 2)}
    figure = go.Figure()
    if position is not None:
        line = {"color": PURPLE, "dash": "dot", "width": 2}
        _add(figure, "by position alone", offsets, position, mode="lines", line=line)
    _add_band(figure, offsets, mean, error)
    _add_kink(figure, at)
    style(
        figure,
        x_title=OFFSET,
        y_title="score − its mean (natural log of attention)",
        height=420,
    )
    figure.update_layout(hovermode="closest")
    _shade_future(figure, offsets)
    return set_title(legend_under_title(figure), title)


def _add(figure: go.Figure, name: str, offsets: Offsets, curve: Band, **look: object) -> None:
    """One curve relative to its mean; NaN leaves a gap."""
    _check(offsets, curve)
    figure.add_scatter(
        x=offsets, y=curve - np.nanmean(curve), name=name, hovertemplate="%{y:.3f}", **look
    )


def _add_band(figure: go.Figure, offsets: Offsets, mean: Band, error: Band) -> None:
    edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "legendgroup": "band"}
    figure.add_scatter(x=offsets, y=mean - error, showlegend=False, **edge)
    figure.add_scatter(
        x=offsets,
        y=mean + error,
        name="± 1 s.e.",
        fill="tonexty",
        fillcolor=fade(BLUE, 0.32),
        **edge,
    )
    figure.add_scatter(
        x=offsets,
        y=mean,
        name="mean raw score",
        mode="lines+markers",
        customdata=error,
        line={"color": BLUE, "width": 2.5},
        marker={"size": 5},
        hovertemplate="<b>k = %{x}</b><br>score %{y:.3f} ± %{customdata:.2g}<extra></extra>",
    )


def _add_kink(figure: go.Figure, at: dict[int, float]) -> None:
    """The line through k = -1 and 2, and how far k = 0 and 1 lie off it."""
    slope = (at[2] - at[-1]) / 3
    figure.add_scatter(
        x=[-2, 3],
        y=[at[-1] - slope, at[2] + slope],
        mode="lines",
        name="line through k = −1 and 2",
        line={"color": MUTED, "width": 2, "dash": "dash"},
        hoverinfo="skip",
    )
    for k, name, symbol in ((0, "current token", "diamond"), (1, "previous token", "square")):
        off = at[k] - (at[-1] + (k + 1) * slope)
        figure.add_scatter(
            x=[k],
            y=[at[k]],
            mode="markers",
            name=f"{name}: {as_printed(f'{off:+.2f}')} off the line",
            marker={
                "color": VERMILLION,
                "size": 12,
                "symbol": symbol,
                "line": {"color": "white", "width": 1},
            },
            hovertemplate=f"<b>{name}, k = {k}</b><br>score %{{y:.3f}}"
            f"<br>{off:+.3f} against the line<extra></extra>",
        )


def _shade_future(figure: go.Figure, offsets: Offsets) -> None:
    """A dotted line at the query, and its future, the offsets below 0, shaded."""
    first, last = float(offsets.min()), float(offsets.max())
    pad = 0.02 * (last - first)
    figure.update_xaxes(range=[first - pad, last + pad])
    figure.add_vline(x=0, line={"color": LINE, "width": 1.5, "dash": "dot"})
    if first < 0:
        edge = first - pad
        figure.add_vrect(x0=edge, x1=-0.5, fillcolor=MASKED, line_width=0, layer="below")
        figure.add_annotation(
            text="future, masked",
            x=(edge - 0.5) / 2,
            y=0,
            yref="paper",
            yanchor="bottom",
            showarrow=False,
            font_size=12,
        )


def _check(offsets: Offsets, curve: Band) -> None:
    if curve.shape != offsets.shape:
        raise ValueError(
            f"expected {len(offsets)} values, one per offset, received {[*curve.shape]}"
        )
