"""Rotary pairs as clocks, whose hands turn with distance."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.common.result import Result
from poskernel_core.common.rounding import as_printed
from poskernel_core.plotting.layout import LINE, number, set_title, style
from poskernel_core.plotting.palette import BLUE, VERMILLION, fade

MAX_CLOCKS = 6
CLOCK_OFFSETS = (0, 1, 2, 4, 8, 16, 64)
RADIUS = 0.43
"""Radius of a clock, in units of the distance between clocks."""
ROW = 56  # height of a row of clocks in pixels


def clocks_figure(head: Result, kernel: Result) -> go.Figure:
    """Draw the clocks of the pairs that matter most to one head, in order of wavelength.

    There is a row for each pair and a column for each offset. A pair's hand stands at the pair's
    phase plus one turn for each wavelength of offset. The hand's shadow on the horizontal is what
    the pair adds to the positional logit, in units of the pair's amplitude. Below stands the logit
    of all pairs together.
    """
    swing = np.nan_to_num(head.values["swing"])
    chosen = np.argsort(-swing, kind="stable")[:MAX_CLOCKS]
    chosen = chosen[swing[chosen] > 0]
    chosen = chosen[np.argsort(head.values["wavelength"][chosen], kind="stable")]
    logit = kernel.values["positional_logit"]
    offsets = [offset for offset in CLOCK_OFFSETS if offset < np.isfinite(logit).sum()]
    wavelength, phase, amplitude = (
        head.values[name][chosen] for name in ("wavelength", "phase", "amplitude")
    )
    figure, ring = go.Figure(), np.linspace(0, 2 * np.pi, 49)
    columns, rows = np.arange(len(offsets)), -np.arange(len(wavelength))
    x, y = (grid.ravel() for grid in np.meshgrid(columns, rows))
    face = [np.append(RADIUS * wave(ring), np.nan) for wave in (np.cos, np.sin)]
    figure.add_scatter(
        x=(x[:, None] + face[0]).ravel(),
        y=(y[:, None] + face[1]).ravel(),
        mode="lines",
        line={"color": LINE, "width": 1},
        hoverinfo="skip",
        showlegend=False,
    )
    angle = (phase[:, None] + 2 * np.pi * np.array(offsets) / wavelength[:, None]).ravel()
    term = np.repeat(amplitude, len(offsets)) * np.cos(angle)
    hover = np.stack(
        [np.repeat(wavelength, len(offsets)), np.tile(offsets, len(wavelength)), term], axis=-1
    )
    for name, there, colour in (
        ("adds to the score", term >= 0, VERMILLION),
        ("takes from the score", term < 0, BLUE),
    ):
        _hands(figure, name, colour, x[there], y[there], angle[there], hover[there])
    figure.add_scatter(
        x=columns,
        y=np.full(len(columns), rows[-1] - 0.78),
        mode="text",
        text=[as_printed(f"{value:+.1f}") for value in logit[offsets].tolist()],
        hovertemplate="S(D) = %{text} nats<extra></extra>",
        showlegend=False,
    )
    style(
        figure,
        x_title="offset D = n − i (tokens)",
        y_title="wavelength (tokens)",
        height=130 + ROW * (len(wavelength) + 1),
    )
    figure.update_xaxes(
        tickvals=columns,
        ticktext=[f"{offset}" for offset in offsets],
        showgrid=False,
        showline=False,
        range=[-0.55, len(columns) - 0.45],
        constrain="domain",
    )
    names = [*(number(float(f"{length:.3g}")) for length in wavelength), "all: S(D)"]
    figure.update_yaxes(
        tickvals=[*rows, rows[-1] - 0.78],
        ticktext=names,
        showgrid=False,
        range=[rows[-1] - 1.1, 0.55],
        scaleanchor="x",
        constrain="domain",
        constraintoward="top",
    )
    return set_title(figure, "How the pairs turn")


def _hands(
    figure: go.Figure,
    name: str,
    colour: str,
    x: np.ndarray,
    y: np.ndarray,
    angle: np.ndarray,
    hover: np.ndarray,
) -> None:
    none = np.full_like(angle, np.nan)
    reach, height = RADIUS * np.cos(angle), RADIUS * np.sin(angle)
    hand = {"mode": "lines", "hoverinfo": "skip", "legendgroup": name, "showlegend": False}
    figure.add_scatter(
        x=np.stack([x, x + reach, none], axis=-1).ravel(),
        y=np.stack([y, y, none], axis=-1).ravel(),
        line={"color": fade(colour, 0.45), "width": 6},
        **hand,
    )
    figure.add_scatter(
        x=np.stack([x, x + reach, none], axis=-1).ravel(),
        y=np.stack([y, y + height, none], axis=-1).ravel(),
        line={"color": colour, "width": 2},
        **hand,
    )
    figure.add_scatter(
        x=x + reach,
        y=y + height,
        mode="markers",
        marker={"color": colour, "size": 6},
        name=name,
        legendgroup=name,
        customdata=hover,
        hovertemplate="wavelength %{customdata[0]:.4g} tokens<br>offset %{customdata[1]}<br>"
        "adds %{customdata[2]:+.3g} nats<extra></extra>",
    )
