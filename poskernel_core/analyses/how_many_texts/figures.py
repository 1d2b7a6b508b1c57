"""Figures of how many texts are enough."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.plotting.head_map import head_map
from poskernel_core.plotting.layout import legend_under_title, log_ticks, number, set_title, style
from poskernel_core.plotting.palette import CATEGORICAL


def texts_figure(found: Result) -> go.Figure:
    """Draw one head's error against windows, or the number of windows that each head needs."""
    if found.axes["enough"] == ():
        return error_curve(found)
    return enough_map(found)


def error_curve(found: Result) -> go.Figure:
    """Draw the error of one head's number against the number of windows, with the fitted law."""
    windows = found.coordinates["subset"].astype(float)
    law, wanted = float(found.values["law"]), float(found.values["wanted"])
    enough = float(found.values["enough"])
    last = max(windows[-1], enough if np.isfinite(enough) else 0.0)
    x = np.geomspace(windows[0], 1.1 * last, 200)
    figure = go.Figure()
    figure.add_scatter(
        x=x,
        y=law / np.sqrt(x),
        mode="lines",
        name="c / √windows",
        line={"color": CATEGORICAL[0], "dash": "dash"},
        hovertemplate="%{x:.0f} windows: %{y:.3g}<extra>by the law</extra>",
    )
    figure.add_scatter(
        x=windows,
        y=found.values["error"],
        mode="markers",
        name="measured",
        marker={"color": CATEGORICAL[0], "size": 9},
        hovertemplate="%{x} windows: %{y:.3g}<extra>measured</extra>",
    )
    figure.add_hline(y=wanted, line={"color": CATEGORICAL[1], "dash": "dot"})
    figure.add_annotation(
        x=0,
        xref="paper",
        y=np.log10(wanted),  # a log axis places annotations by their logarithm
        text=f"wanted: {wanted:.3g}",
        showarrow=False,
        xanchor="left",
        yanchor="bottom",
    )
    shown = np.concatenate([law / np.sqrt(x), found.values["error"], [wanted]])
    head = head_name(found.chosen["layer"], found.chosen["head"])
    title = f"{found.params['measure'][0].upper()}{found.params['measure'][1:]} of {head}"
    set_title(figure, f"{title}: {_windows(enough)} for the wanted error")
    style(figure, x_title="windows (log scale)", y_title="error (log scale)", height=340)
    figure.update_xaxes(type="log", tickvals=log_ticks(windows[0], 1.1 * last))
    low, high = float(np.nanmin(shown)) / 1.2, 1.2 * float(np.nanmax(shown))
    figure.update_yaxes(type="log", tickvals=log_ticks(low, high))
    return legend_under_title(figure)


def enough_map(found: Result) -> go.Figure:
    """Draw the windows needed for the wanted error, per head ``[layer, head]``, on a log scale."""
    enough = found.values["enough"]
    ticks = log_ticks(1.0, max(10.0, float(np.nanmax(enough, initial=10.0))))
    texts = np.vectorize(_windows, otypes=[object])(enough)
    bar = {"tickvals": np.log10(ticks), "ticktext": [number(tick) for tick in ticks]}
    figure = head_map(
        np.log10(np.maximum(enough, 1.0)),
        told="<br>%{customdata}",
        height=min(420, 170 + 40 * len(enough)),
        customdata=texts,
        colorbar={"title": "windows<br>(log scale)"} | bar,
    )
    return set_title(figure, f"Windows for the wanted error: {found.params['measure']}")


def _windows(enough: float) -> str:
    return counted(f"{enough:,.0f}", "window") if np.isfinite(enough) else "no number of windows"
