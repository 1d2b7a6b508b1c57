"""Rotary pairs and what changing them does, as figures."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.rotary.bands import CHANGES, TREATMENTS
from poskernel_core.analyses.rotary.curves import (
    changed_losses,
    clocks,
    offset_curves,
    over_wavelengths,
    spectrum,
)
from poskernel_core.analyses.rotary.formulas import BANDS
from poskernel_core.common.result import Result
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.palette import BLUE, GREEN, PURPLE, VERMILLION

MOST_CLOCKS = 6
CLOCK_OFFSETS = (0, 1, 2, 4, 8, 16, 64)
BAND_LOOKS = {
    "short": {"color": VERMILLION, "dash": "dash", "width": 2},
    "middle": {"color": GREEN, "dash": "dashdot", "width": 2},
    "long": {"color": PURPLE, "dash": "dot", "width": 2.5},
}
WHOLE = {"color": BLUE, "width": 3}


def band_edges(found: Result) -> tuple[float, float]:
    """Where the short and the middle band end, in tokens."""
    long = found.params["long"]
    return float(found.params["short"]), float(long or found.provenance["context"])


def clocks_figure(head: Result, kernel: Result) -> go.Figure:
    """The clocks of the pairs that matter most to one head, in order of wavelength."""
    swing = np.nan_to_num(head.values["swing"])
    chosen = np.argsort(-swing, kind="stable")[:MOST_CLOCKS]
    chosen = chosen[swing[chosen] > 0]
    chosen = chosen[np.argsort(head.values["wavelength"][chosen], kind="stable")]
    logit = kernel.values["positional_logit"]
    offsets = [each for each in CLOCK_OFFSETS if each < np.isfinite(logit).sum()]
    return clocks(
        head.values["wavelength"][chosen],
        head.values["phase"][chosen],
        head.values["amplitude"][chosen],
        offsets,
        logit[offsets].tolist(),
        title="How the pairs turn",
    )


def amplitudes_figure(head: Result) -> go.Figure:
    """One head's amplitudes, swings and phases over the wavelength."""
    turned = np.isfinite(head.values["wavelength"])
    both = {
        name: (head.values[name][turned], head.errors[name][turned])
        for name in ("amplitude", "swing", "phase")
    }
    phase = both.pop("phase")
    return spectrum(
        head.values["wavelength"][turned],
        both,
        phase,
        band_edges(head),
        title="Amplitudes and phases",
    )


def usage_figure(head: Result) -> go.Figure:
    """Usage of each wavelength, beside the shares of amplitude and swing."""
    values = {name: array for name, array in head.values.items() if array.ndim}
    swing, amplitude = (values[name] / np.nansum(values[name]) for name in ("swing", "amplitude"))
    lines = {
        "usage": (values["usage"], head.errors["usage"]),
        "share of swing": (swing, None),
        "share of amplitude": (amplitude, None),
    }
    return over_wavelengths(
        values["wavelength"],
        lines,
        band_edges(head),
        title="Usage of wavelengths",
        y_title="share over all pairs",
    )


def shares_figure(head: Result) -> go.Figure:
    """Mean shares of queries and keys, of each pair and of all."""
    lines = {
        "queries": (head.values["query_share"], head.errors["query_share"]),
        "keys": (head.values["key_share"], head.errors["key_share"]),
    }
    levels = {
        f"{name}, all pairs": float(head.values[f"mean_share_{name}"])
        for name in ("queries", "keys")
    }
    figure = over_wavelengths(
        head.values["wavelength"],
        lines,
        band_edges(head),
        title="Mean shares",
        y_title="mean share (0 to 1)",
        levels=levels,
    )
    return figure.update_yaxes(range=[0, 1.02])


def logit_figure(head: Result, *, log_x: bool = False) -> go.Figure:
    """The positional logit by offset, and the part of each band."""
    logit, shown = _visible(head, "positional_logit")
    parts = head.values["band_logit"][:, shown]
    curves = {"S(D)": (logit, WHOLE)}
    for (name, look), part in zip(BAND_LOOKS.items(), parts, strict=True):
        curves[f"{name} wavelengths"] = (part, look)
    return offset_curves(
        curves,
        title="Positional logit by offset",
        y_title="score − its mean (nats)",
        error=head.errors["positional_logit"][shown],
        log_x=log_x,
    )


def equivariant_curve(head: Result, *, log_x: bool = False) -> go.Figure:
    """The equivariant kernel, the positional kernel and the observed attention."""
    kernel, shown = _visible(head, "equivariant_kernel")
    curves = {
        "equivariant kernel": (kernel, WHOLE),
        "positional kernel K": (
            head.values["mean_key_kernel"][shown],
            {"color": GREEN, "dash": "dashdot", "width": 2},
        ),
        "observed attention": (
            head.values["observed"][shown],
            {"color": VERMILLION, "dash": "dash", "width": 2},
        ),
    }
    return offset_curves(
        curves,
        title="Equivariant kernel",
        y_title="probability per token",
        error=head.errors["equivariant_kernel"][shown],
        log_x=log_x,
    )


def without_figure(head: Result, *, log_x: bool = False) -> go.Figure:
    """The kernel, and the kernel without each band."""
    kernel, shown = _visible(head, "equivariant_kernel")
    curves = {"all wavelengths": (kernel, WHOLE)}
    rows = head.values["without_band"][:, shown]
    for (name, look), row in zip(BAND_LOOKS.items(), rows, strict=True):
        curves[f"without {name} ones"] = (row, look)
    return offset_curves(
        curves,
        title="The kernel without each band",
        y_title="probability per token",
        log_x=log_x,
    )


def _visible(head: Result, name: str) -> tuple[np.ndarray, np.ndarray]:
    """One curve over the visible offsets, and which they are."""
    shown = np.isfinite(head.values["positional_logit"])
    return head.values[name][shown], shown


def losses_figure(changed: Result) -> go.Figure:
    """What each band's change does to the loss."""
    rises = {}
    for treatment in TREATMENTS:
        places = [CHANGES.index(f"{band} {treatment}") for band in BANDS]
        rise, error = (part["loss_change"][places] for part in (changed.values, changed.errors))
        rises[treatment] = (rise, error)
    return changed_losses(BANDS, rises, title="Loss without a band")


def profiles_figure(changed: Result, treatment: str, *, log_x: bool = False) -> go.Figure:
    """The observed head's mean attention by offset: clean, and with each band changed so."""
    profile, errors = changed.values["profile"], changed.errors["profile"]
    shown = np.isfinite(profile[0])
    curves = {"clean": (profile[0, shown], WHOLE)}
    for band, look in BAND_LOOKS.items():
        row = profile[CHANGES.index(f"{band} {treatment}"), shown]
        curves[f"{band} ones {treatment}"] = (row, look)
    return offset_curves(
        curves,
        title=f"Attention of {changed.params['head']}, wavelengths {treatment}",
        y_title="mean attention",
        error=errors[0, shown],
        log_x=log_x,
    )


def changed_figure(result: Result) -> go.Figure:
    """What each band's change does to the loss."""
    return losses_figure(result)


def spectrum_figure(result: Result) -> go.Figure:
    """One head's amplitudes and phases, or the dominant wavelengths of all heads."""
    if result.axes.get("amplitude") == ("pair",):
        return amplitudes_figure(result)
    return by_axes(result.only("dominant_wavelength"))


def equivariant_figure(result: Result) -> go.Figure:
    """One head's kernels by offset, or those of all heads."""
    if result.axes.get("equivariant_kernel") == ("offset",):
        return equivariant_curve(result)
    return by_axes(result.only("equivariant_kernel"))
