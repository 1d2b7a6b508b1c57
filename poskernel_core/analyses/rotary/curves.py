"""Rotary heads: clocks that turn with distance, spectra over wavelengths, curves over offsets."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float
from plotly.subplots import make_subplots

from poskernel_core.common.rounding import as_printed
from poskernel_core.plotting.layout import LINE, MUTED, log_ticks, number, set_title, style
from poskernel_core.plotting.palette import BLUE, VERMILLION, fade

PerPair = Float[np.ndarray, " pair"]
PerOffset = Float[np.ndarray, " offset"]

RADIUS = 0.43
"""Of a clock, in units of the way from one clock to the next."""
ROW = 56  # height of a row of clocks in pixels
LOG_OFFSETS = (0, *(step * 10**power for power in range(6) for step in (1, 2, 5)))
NOTHING = 1e-4  # nats: amplitudes on a log axis are drawn no lower


def clocks(
    wavelength: PerPair,
    phase: PerPair,
    amplitude: PerPair,
    offsets: Sequence[int],
    total: Sequence[float],
    *,
    title: str,
) -> go.Figure:
    """One clock for each pair (a row) and each of `offsets` (tokens, a column).

    The hand of a pair stands at `phase` plus one turn for each `wavelength` tokens of offset. Its
    shadow on the horizontal is what the pair adds to the positional logit, in units of `amplitude`
    (nats); `total` is that logit at each offset, of all pairs together.
    """
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
    told = np.stack(
        [np.repeat(wavelength, len(offsets)), np.tile(offsets, len(wavelength)), term], axis=-1
    )
    for name, there, colour in (
        ("adds to the score", term >= 0, VERMILLION),
        ("takes from the score", term < 0, BLUE),
    ):
        _hands(figure, name, colour, x[there], y[there], angle[there], told[there])
    figure.add_scatter(
        x=columns,
        y=np.full(len(columns), rows[-1] - 0.78),
        mode="text",
        text=[as_printed(f"{value:+.1f}") for value in total],
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
    names = [*(number(float(f"{each:.3g}")) for each in wavelength), "all: S(D)"]
    figure.update_yaxes(
        tickvals=[*rows, rows[-1] - 0.78],
        ticktext=names,
        showgrid=False,
        range=[rows[-1] - 1.1, 0.55],
        scaleanchor="x",
        constrain="domain",
        constraintoward="top",
    )
    return set_title(figure, title)


def _hands(
    figure: go.Figure,
    name: str,
    colour: str,
    x: np.ndarray,
    y: np.ndarray,
    angle: np.ndarray,
    told: np.ndarray,
) -> None:
    """Hands of clocks at (x, y), each with its shadow on the horizontal."""
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
        customdata=told,
        hovertemplate="wavelength %{customdata[0]:.4g} tokens<br>offset %{customdata[1]}<br>"
        "adds %{customdata[2]:+.3g} nats<extra></extra>",
    )


def spectrum(
    wavelength: PerPair,
    sizes: Mapping[str, tuple[PerPair, PerPair]],
    phase: tuple[PerPair, PerPair],
    edges: tuple[float, float],
    *,
    title: str,
) -> go.Figure:
    """Above, `sizes` by name (nats, each with its error) on log axes; below, the phase (radians).

    `edges` are the wavelengths at which one band ends and the next begins.
    """
    figure = make_subplots(
        rows=2, shared_xaxes=True, row_heights=[0.62, 0.38], vertical_spacing=0.1
    )
    for (name, (value, error)), (colour, dash) in zip(
        sizes.items(), ((BLUE, "dash"), (VERMILLION, "solid")), strict=True
    ):
        shown = np.maximum(value, NOTHING)
        low = np.minimum(error, shown - NOTHING / 10)
        figure.add_scatter(
            x=wavelength,
            y=shown,
            error_y={"array": error, "arrayminus": low, "symmetric": False, "thickness": 1},
            name=name,
            mode="lines+markers",
            line={"color": colour, "dash": dash, "width": 2},
            customdata=np.stack([value, error], axis=-1),
            hovertemplate=f"{name} %{{customdata[0]:.3g}} ± %{{customdata[1]:.1g}} nats"
            "<extra></extra>",
            row=1,
            col=1,
        )
    peak = (-phase[0] / (2 * np.pi) * wavelength) % wavelength
    figure.add_scatter(
        x=wavelength,
        y=phase[0],
        error_y={"array": phase[1], "thickness": 1},
        name="phase",
        mode="markers",
        marker={"color": BLUE, "size": 7, "symbol": "diamond"},
        customdata=np.stack([phase[1], peak], axis=-1),
        hovertemplate="phase %{y:.2f} ± %{customdata[0]:.1g}<br>largest at offset "
        "%{customdata[1]:.3g}<extra></extra>",
        showlegend=False,
        row=2,
        col=1,
    )
    style(figure, x_title="", y_title="", height=470)
    values = np.concatenate([np.maximum(value, NOTHING) for value, _ in sizes.values()])
    ticks = log_ticks(float(np.nanmin(values)) / 2, 2 * float(np.nanmax(values)))
    figure.update_yaxes(
        type="log", tickvals=ticks, ticktext=[number(t) for t in ticks],
        title_text="nats (log scale)", row=1, col=1,
    )  # fmt: skip
    figure.update_yaxes(
        range=[-3.5, 3.5], tickvals=[-np.pi, 0, np.pi], ticktext=["−π", "0", "π"],
        title_text="phase (radians)", row=2, col=1,
    )  # fmt: skip
    return set_title(_over_wavelengths(figure, wavelength, edges, row=2), title)


def over_wavelengths(
    wavelength: PerPair,
    lines: Mapping[str, tuple[PerPair, PerPair | None]],
    edges: tuple[float, float],
    *,
    title: str,
    y_title: str,
    levels: Mapping[str, float] | None = None,
) -> go.Figure:
    """Lines over the wavelength, with their errors where they have some; `levels` go across."""
    figure = go.Figure()
    looks = ((BLUE, "solid"), (VERMILLION, "dash"), (MUTED, "dot"))
    for (name, (value, error)), (colour, dash) in zip(lines.items(), looks, strict=False):
        figure.add_scatter(
            x=wavelength,
            y=value,
            error_y=None if error is None else {"array": error, "thickness": 1},
            name=name,
            mode="lines+markers",
            line={"color": colour, "dash": dash, "width": 2},
            hovertemplate=f"{name} %{{y:.3g}}<extra></extra>",
        )
    span = [float(np.nanmin(wavelength)), float(np.nanmax(wavelength))]
    for (name, level), (colour, _) in zip((levels or {}).items(), looks, strict=False):
        figure.add_scatter(
            x=span,
            y=[level, level],
            name=name,
            mode="lines",
            line={"color": fade(colour, 0.6), "dash": "longdash", "width": 1.5},
            hovertemplate=f"{name} %{{y:.3g}}<extra></extra>",
        )
    style(figure, x_title="", y_title=y_title, height=380)
    figure.update_yaxes(rangemode="tozero")
    return set_title(_over_wavelengths(figure, wavelength, edges), title)


def _over_wavelengths(
    figure: go.Figure, wavelength: PerPair, edges: tuple[float, float], row: int | None = None
) -> go.Figure:
    """Give a figure its log axis of wavelengths, with a line where each band ends, in place."""
    low, high = float(np.nanmin(wavelength)) / 1.3, 1.3 * float(np.nanmax(wavelength))
    ticks = log_ticks(low, high)
    for edge in edges:
        if low < edge < high:
            figure.add_vline(x=edge, line={"color": MUTED, "dash": "dot", "width": 1})
    figure.update_xaxes(
        type="log",
        range=[float(np.log10(low)), float(np.log10(high))],
        tickvals=ticks,
        ticktext=[number(tick) for tick in ticks],
    )
    place: dict[str, Any] = {} if row is None else {"row": row, "col": 1}
    figure.update_xaxes(title_text="wavelength (tokens, log scale)", **place)
    return figure.update_layout(hovermode="x unified")


def offset_curves(
    curves: Mapping[str, tuple[PerOffset, dict[str, Any]]],
    *,
    title: str,
    y_title: str,
    error: PerOffset | None = None,
    log_x: bool = False,
) -> go.Figure:
    """Curves over the offset 0, 1, ... (tokens), each with its line's look.

    `error` is the standard error of the first, drawn as a band around it.
    """
    figure = go.Figure()
    for place, (name, (values, line)) in enumerate(curves.items()):
        x = np.arange(len(values)) + (1 if log_x else 0)
        if place == 0 and error is not None and np.isfinite(error).any():
            edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
            figure.add_scatter(x=x, y=values - error, **edge)
            figure.add_scatter(
                x=x, y=values + error, fill="tonexty", fillcolor=fade(line["color"], 0.3), **edge
            )
        figure.add_scatter(
            x=x,
            y=values,
            name=name,
            mode="lines",
            line=line,
            customdata=np.arange(len(values)),
            hovertemplate=f"offset %{{customdata}}: {name} %{{y:.3g}}<extra></extra>",
        )
    spacing = ", log spacing" if log_x else ""
    style(figure, x_title=f"offset D = n − i (tokens{spacing})", y_title=y_title)
    figure.update_layout(hovermode="x unified", legend_traceorder="normal")
    figure.update_xaxes(unifiedhovertitle_text=y_title)  # x is offset + 1 on a log axis
    if log_x:
        last = max(len(values) for values, _ in curves.values()) - 1
        ticks = [tick for tick in LOG_OFFSETS if tick <= last]
        figure.update_xaxes(
            type="log", tickvals=[tick + 1 for tick in ticks], ticktext=[f"{t}" for t in ticks]
        )
    return set_title(figure, title)


def changed_losses(
    bands: Sequence[str],
    rises: Mapping[str, tuple[Float[np.ndarray, " band"], Float[np.ndarray, " band"]]],
    *,
    title: str,
) -> go.Figure:
    """Bars of the change of the loss (nats) for each band, by what was done to it, with errors."""
    figure = go.Figure()
    for (name, (value, error)), (colour, shape) in zip(
        rises.items(), ((BLUE, ""), (VERMILLION, "/")), strict=True
    ):
        figure.add_bar(
            x=list(bands),
            y=value,
            error_y={"array": error, "thickness": 1.5},
            name=name,
            marker={
                "color": colour,
                "pattern": {"shape": shape, "fillmode": "overlay", "fgcolor": "#ffffff", "size": 6},
                "line_width": 0,
            },
            hovertemplate=f"{name}: %{{y:+.3g}} nats<extra></extra>",
        )
    style(figure, x_title="wavelengths", y_title="loss − clean loss (nats)")
    figure.update_layout(barmode="group", bargap=0.3)
    return set_title(figure, title)
