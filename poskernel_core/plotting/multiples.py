"""Small multiples: one little panel per head, all on the same axes.

All panels share one pair of Plotly axes, with shifted coordinates, because 64 real subplots take
the browser seconds to draw.
"""

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from poskernel_core.plotting.layout import FLOOR, LINE, SELECTED, log_ticks, number, style
from poskernel_core.plotting.palette import BLUE, VERMILLION, log_position

_PITCH_X, _PITCH_Y = 1.08, 1.32  # panel to panel, in panel widths and heights (a title between)
_FRAME = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0], [np.nan, np.nan]])
_OUTSET = (_FRAME - 0.5) * [0.05, 0.1]  # the selected frame stands clear of its curve


def small_multiples(
    kernels: Float[np.ndarray, "head offset"], labels: list[str], selected: int
) -> go.Figure:
    """Draw one panel per head: K (probability per token, log scale) over the offset (tokens).

    `labels` names the heads ("L3H7"), `selected` is the index of the head drawn bold.
    """
    heads, width = kernels.shape
    columns = min(heads, 4 if heads <= 8 else 6 if heads <= 24 else 8)
    row, column = np.divmod(np.arange(heads), columns)  # in reading order, rows going down
    corners = np.stack([column * _PITCH_X, -row * _PITCH_Y], axis=-1)
    high = max(float(np.nanmax(kernels)), FLOOR)  # a log axis spans a factor of ten or more
    low = max(FLOOR / 10, min(float(np.nanmin(kernels)), high / 10))
    rest = np.linspace(64, width - 1, min(100, max(width - 64, 0)))  # panels have few pixels
    offset = np.concatenate([np.arange(min(64, width)), rest.astype(int)])
    figure, plain = go.Figure(), {"color": BLUE, "width": 1.5}
    for head, label in enumerate(labels):
        height = log_position(kernels[head, offset], low, high)
        x = corners[head, 0] + offset / max(width - 1, 1)
        values = np.stack([offset, kernels[head, offset]], axis=-1)
        figure.add_scatter(
            x=x,
            y=corners[head, 1] + height,
            name=label,
            mode="lines",
            line={"color": VERMILLION, "width": 2.5} if head == selected else plain,
            customdata=values,
            hovertemplate=f"<b>{label}</b><br>offset %{{customdata[0]:d}}<br>"
            "K %{customdata[1]:.3g}<extra></extra>",
        )
    _add_frames(figure, corners, labels, selected)
    return _shared_axes(figure, corners, width, (low, high))


def _add_frames(
    figure: go.Figure, corners: Float[np.ndarray, "head 2"], labels: list[str], selected: int
) -> None:
    frames = (corners[:, None] + _FRAME).reshape(-1, 2)
    chosen = corners[selected] + _FRAME + _OUTSET
    titles = [f"<b>{name} ◀</b>" if i == selected else name for i, name in enumerate(labels)]
    quiet = {"mode": "lines", "hoverinfo": "skip"}
    figure.add_scatter(x=frames[:, 0], y=frames[:, 1], line={"color": LINE, "width": 0.7}, **quiet)
    figure.add_scatter(
        x=chosen[:, 0],
        y=chosen[:, 1],
        line={"color": VERMILLION, "width": 2.5},
        name=SELECTED,
        **quiet,
    )
    figure.add_scatter(
        x=corners[:, 0],
        y=corners[:, 1] + 1.06,
        mode="text",
        text=titles,
        textfont={"size": 11},
        textposition="top right",
        hoverinfo="skip",
        cliponaxis=False,
    )


def _shared_axes(
    figure: go.Figure,
    corners: Float[np.ndarray, "head 2"],
    width: int,
    span: tuple[float, float],
) -> go.Figure:
    lefts, bottoms = np.unique(corners[:, 0]), np.unique(corners[:, 1])
    reach = max(1.0, 0.75 * width)
    x_ticks = [0, int(log_ticks(reach / 10, reach)[-1])]  # the largest round one on the left
    y_ticks = log_ticks(*span)[:: max(1, len(log_ticks(*span)) - 1)]
    x_at = np.array(x_ticks) / max(width - 1, 1)
    y_at = log_position(np.array(y_ticks), *span)
    style(
        figure,
        x_title="offset n − i (tokens)",
        y_title="K (probability per token, log scale)",
        height=90 + 92 * len(bottoms),
    )
    figure.update_layout(showlegend=False, hovermode="closest", margin_t=24)
    figure.update_xaxes(
        tickvals=(lefts[:, None] + x_at).ravel(),
        ticktext=[f"{t}" for t in x_ticks] * len(lefts),
        showgrid=False,
        showline=False,
        range=[-0.02, lefts[-1] + 1.02],
        tickangle=0,
    )
    figure.update_yaxes(
        tickvals=(bottoms[:, None] + y_at).ravel(),
        ticktext=[number(t) for t in y_ticks] * len(bottoms),
        showgrid=False,
        showline=False,
        range=[bottoms[0] - 0.08, 1.38],
    )
    return figure
