"""Figures of rotary pairs: spectra over wavelengths, curves over offsets, effects of changes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float
from plotly.subplots import make_subplots

from poskernel_core.analyses.rotary.bands import CHANGES, TREATMENTS
from poskernel_core.analyses.rotary.formulas import BANDS
from poskernel_core.common.result import Result
from poskernel_core.plotting.curves import Look, add_by_offset
from poskernel_core.plotting.layout import MUTED, log_axis, log_offsets, set_title, style
from poskernel_core.plotting.palette import BLUE, GREEN, PURPLE, VERMILLION, fade, hatched

NOTHING = 1e-4  # nats; lower limit of amplitudes on a log axis
BAND_LOOKS = {
    "short": Look(VERMILLION, "dash", "square"),
    "middle": Look(GREEN, "dashdot", "diamond"),
    "long": Look(PURPLE, "dot", "triangle-up"),
}
WHOLE = Look(BLUE)
LOOKS = (WHOLE, *BAND_LOOKS.values())

PerPair = Float[np.ndarray, " pair"]
Rows = dict[str, tuple[np.ndarray, np.ndarray | None]]


def band_edges(result: Result) -> tuple[float, float]:
    """Return where the short and the middle band end, in tokens."""
    long = result.params["long"]
    return float(result.params["short"]), float(long or result.provenance["context"])


def amplitudes_figure(head: Result) -> go.Figure:
    """Draw one head's amplitudes and swings over the wavelength on log axes; below, the phases."""
    turned = np.isfinite(head.values["wavelength"])
    wavelength = head.values["wavelength"][turned]
    figure = make_subplots(
        rows=2, shared_xaxes=True, row_heights=[0.62, 0.38], vertical_spacing=0.1
    )
    sizes = []
    for name, colour, dash in (("amplitude", BLUE, "dash"), ("swing", VERMILLION, "solid")):
        value, error = head.values[name][turned], head.errors[name][turned]
        drawn = np.maximum(value, NOTHING)
        sizes.append(drawn)
        low = np.minimum(error, drawn - NOTHING / 10)
        figure.add_scatter(
            x=wavelength,
            y=drawn,
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
    phase, error = head.values["phase"][turned], head.errors["phase"][turned]
    peak = (-phase / (2 * np.pi) * wavelength) % wavelength
    figure.add_scatter(
        x=wavelength,
        y=phase,
        error_y={"array": error, "thickness": 1},
        name="phase",
        mode="markers",
        marker={"color": BLUE, "size": 7, "symbol": "diamond"},
        customdata=np.stack([error, peak], axis=-1),
        hovertemplate="phase %{y:.2f} ± %{customdata[0]:.1g}<br>largest at offset "
        "%{customdata[1]:.3g}<extra></extra>",
        showlegend=False,
        row=2,
        col=1,
    )
    style(figure, x_title="", y_title="", height=470)
    nats = log_axis(float(np.nanmin(sizes)) / 2, 2 * float(np.nanmax(sizes)))
    figure.update_yaxes(**nats, title_text="nats (log scale)", row=1, col=1)
    figure.update_yaxes(
        range=[-3.5, 3.5], tickvals=[-np.pi, 0, np.pi], ticktext=["−π", "0", "π"],
        title_text="phase (radians)", row=2, col=1,
    )  # fmt: skip
    return _over_wavelengths(figure, wavelength, band_edges(head), row=2)


def usage_figure(head: Result) -> go.Figure:
    """Draw the usage of each wavelength, next to the shares of amplitude and swing."""
    values = {name: array for name, array in head.values.items() if array.ndim}
    swing, amplitude = (values[name] / np.nansum(values[name]) for name in ("swing", "amplitude"))
    lines = {
        "usage": (values["usage"], head.errors["usage"]),
        "share of swing": (swing, None),
        "share of amplitude": (amplitude, None),
    }
    return _lines(head, lines, y_title="share over all pairs")


def shares_figure(head: Result) -> go.Figure:
    """Draw the mean shares of queries and keys, for each pair and for all pairs together."""
    lines = {
        "queries": (head.values["query_share"], head.errors["query_share"]),
        "keys": (head.values["key_share"], head.errors["key_share"]),
    }
    levels = {
        f"{name}, all pairs": float(head.values[f"mean_share_{name}"])
        for name in ("queries", "keys")
    }
    figure = _lines(head, lines, y_title="mean share (0 to 1)", levels=levels)
    return figure.update_yaxes(range=[0, 1.02])


def _lines(
    head: Result,
    lines: Mapping[str, tuple[PerPair, PerPair | None]],
    *,
    y_title: str,
    levels: Mapping[str, float] | None = None,
) -> go.Figure:
    """Draw lines over the wavelength, with errors if any; `levels` are horizontal lines."""
    figure, wavelength = go.Figure(), head.values["wavelength"]
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
    return _over_wavelengths(figure, wavelength, band_edges(head))


def _over_wavelengths(
    figure: go.Figure, wavelength: PerPair, edges: tuple[float, float], row: int | None = None
) -> go.Figure:
    """Give a figure its log axis of wavelengths, with a line where each band ends, in place."""
    low, high = float(np.nanmin(wavelength)) / 1.3, 1.3 * float(np.nanmax(wavelength))
    for edge in edges:
        if low < edge < high:
            figure.add_vline(x=edge, line={"color": MUTED, "dash": "dot", "width": 1})
    figure.update_xaxes(**log_axis(low, high), range=[float(np.log10(low)), float(np.log10(high))])
    place: dict[str, Any] = {} if row is None else {"row": row, "col": 1}
    figure.update_xaxes(title_text="wavelength (tokens, log scale)", **place)
    return figure.update_layout(hovermode="x unified")


def logit_figure(head: Result, *, log_x: bool = False) -> go.Figure:
    """Draw the positional logit by offset, and the part of each band."""
    logit = head.values["positional_logit"]
    rows: Rows = {"S(D)": (logit, head.errors["positional_logit"])}
    for name, part in zip(BAND_LOOKS, head.values["band_logit"], strict=True):
        rows[f"{name} wavelengths"] = part, None
    return _by_offset(rows, logit, LOOKS, y_title="score − its mean (nats)", log_x=log_x)


def equivariant_curve(head: Result, *, log_x: bool = False) -> go.Figure:
    """Draw the equivariant kernel, the positional kernel and the observed attention."""
    kernel, error = (part["equivariant_kernel"] for part in (head.values, head.errors))
    rows = {
        "equivariant kernel": (kernel, error),
        "positional kernel K": (head.values["mean_key_kernel"], None),
        "observed attention": (head.values["observed"], None),
    }
    looks = WHOLE, Look(GREEN, "dashdot", "diamond"), Look(VERMILLION, "dash", "square")
    logit = head.values["positional_logit"]
    return _by_offset(rows, logit, looks, y_title="probability per token", log_x=log_x)


def without_figure(head: Result, *, log_x: bool = False) -> go.Figure:
    """Draw the kernel, and the kernel without each band."""
    rows: Rows = {"all wavelengths": (head.values["equivariant_kernel"], None)}
    for name, row in zip(BAND_LOOKS, head.values["without_band"], strict=True):
        rows[f"without {name} ones"] = row, None
    logit = head.values["positional_logit"]
    return _by_offset(rows, logit, LOOKS, y_title="probability per token", log_x=log_x)


def _by_offset(
    rows: Rows, known: np.ndarray, looks: Sequence[Look], *, y_title: str, log_x: bool
) -> go.Figure:
    """Draw curves over the offset 0, 1, ... (tokens), with errors if any, where one is known."""
    seen = np.isfinite(known)
    rows = {name: (row[seen], error if error is None else error[seen])
            for name, (row, error) in rows.items()}  # fmt: skip
    figure, last = go.Figure(), int(seen.sum()) - 1
    add_by_offset(figure, np.arange(last + 1), rows, looks, log_x=log_x)
    spacing = ", log scale" if log_x else ""
    style(figure, x_title=f"offset D = n − i (tokens{spacing})", y_title=y_title)
    figure.update_layout(hovermode="x unified", legend_traceorder="normal")
    figure.update_xaxes(unifiedhovertitle_text=y_title)  # x is offset + 1 on a log axis
    if log_x:
        figure.update_xaxes(**log_offsets(last))
    return figure


def losses_figure(changed: Result) -> go.Figure:
    """Draw the effect of each band's change on the loss."""
    figure = go.Figure()
    for treatment, colour, shape in zip(TREATMENTS, (BLUE, VERMILLION), ("", "/"), strict=True):
        places = [CHANGES.index(f"{band} {treatment}") for band in BANDS]
        rise, error = (part["loss_change"][places] for part in (changed.values, changed.errors))
        figure.add_bar(
            x=list(BANDS),
            y=rise,
            error_y={"array": error, "thickness": 1.5},
            name=treatment,
            marker=hatched(colour, shape, size=6, fgcolor="#ffffff"),
            hovertemplate=f"{treatment}: %{{y:+.3g}} nats<extra></extra>",
        )
    style(figure, x_title="wavelengths", y_title="loss − clean loss (nats)")
    return figure.update_layout(barmode="group", bargap=0.3)


def profiles_figure(
    changed: Result, treatment: str = TREATMENTS[0], *, log_x: bool = False
) -> go.Figure:
    """Draw the head's mean attention by offset: clean, and with this treatment of each band."""
    profile, errors = changed.values["profile"], changed.errors["profile"]
    rows: Rows = {"clean": (profile[0], errors[0])}
    for band in BAND_LOOKS:
        rows[f"{band} ones {treatment}"] = profile[CHANGES.index(f"{band} {treatment}")], None
    figure = _by_offset(rows, profile[0], LOOKS, y_title="mean attention", log_x=log_x)
    return set_title(figure, f"Attention of {changed.params['head']}, wavelengths {treatment}")
