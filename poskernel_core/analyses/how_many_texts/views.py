"""What is drawn and said of how many texts are enough."""

from html import escape
from textwrap import wrap

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import Number, capital, param, who
from poskernel_core.analyses.views import View, Views
from poskernel_core.common.result import BEGINNINGS, NORMAL, Result
from poskernel_core.common.rounding import brief, counted
from poskernel_core.plotting.head_map import head_map
from poskernel_core.plotting.layout import legend_under_title, log_ticks, number, set_title, style
from poskernel_core.plotting.palette import CATEGORICAL

UNCERTAIN = 1 / 3
"""Standard error of a number of windows, as a share of it."""

RARE, MUCH = 0.58, 0.6
"""Influences: what the largest of ten groups passes in 5 of 100 normal samples; what is told."""

LINE = 44
"""Letters in a line of a hover text, for a phone."""


def _one(result: Result) -> str:
    """Hold the windows that are enough for a head against those that were read."""
    read = int(result.coordinates["subset"][-1])
    needed = _uncertain(float(result.values["enough"]))
    passes = needed.passes(read) if np.isfinite(needed.value) else None
    if passes in (None, "about"):
        return ""
    wanted = brief(float(result.values["wanted"]))
    windows = counted(f"{needed.value:,.0f}", "window")
    more = "fewer" if passes == "no" else "more"
    return (
        f"For an error of {wanted} in the {param(result, 'measure')} of {who(result)} about "
        f"{windows} are enough, {more} than the {read:,} that were read."
    )


def _all(result: Result) -> str:
    read, enough = int(result.coordinates["subset"][-1]), result.values["enough"].astype(float)
    needs = [_uncertain(count).passes(read) for count in enough[np.isfinite(enough)]]
    if not (sure := needs.count("no")):
        return ""
    return (
        f"The {counted(f'{read:,}', 'window')} that were read give {sure} of "
        f"{counted(len(needs), 'head')} the wanted error of the {param(result, 'measure')}."
    )


def _uncertain(windows: float) -> Number:
    return Number.within(windows, NORMAL * UNCERTAIN * windows)


def _curve(result: Result) -> go.Figure:
    windows = result.coordinates["subset"].astype(float)
    law, wanted = float(result.values["law"]), float(result.values["wanted"])
    enough = float(result.values["enough"])
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
        y=result.values["error"],
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
    drawn = np.concatenate([law / np.sqrt(x), result.values["error"], [wanted]])
    title = f"{capital(result.params['measure'])} of {who(result)}"
    set_title(figure, f"{title}: {_windows(enough)} for the wanted error")
    style(figure, x_title="windows (log scale)", y_title="error (log scale)", height=340)
    figure.update_xaxes(type="log", tickvals=log_ticks(windows[0], 1.1 * last))
    low, high = float(np.nanmin(drawn)) / 1.2, 1.2 * float(np.nanmax(drawn))
    figure.update_yaxes(type="log", tickvals=log_ticks(low, high))
    return legend_under_title(figure)


def largest_influence(result: Result) -> np.ndarray:
    """Return how much of each squared error one group of texts makes at most, ``[layer head]``."""
    return np.asarray(result.values["influence"].max(axis=0))


def _deciding(result: Result) -> str:
    """Name the group of texts that makes most of a head's error, if it makes very much of it."""
    influence = np.nan_to_num(result.values["influence"])
    most = int(influence.argmax())
    if influence[most] < MUCH:
        return ""
    share, measure = brief(float(influence[most])), param(result, "measure")
    texts = (result.words(BEGINNINGS.name) or [""] * len(influence))[most]
    return (
        f"{share} of the squared error of the {measure} of {who(result)} come from one group of "
        f"texts, number {most}{f': {texts}' if texts else ''}."
    )


def _by_group(result: Result) -> go.Figure:
    """Draw how much of a head's squared error each group of texts makes."""
    influence = result.values["influence"]
    begin = [
        "".join(f"<br>{escape(line, quote=False)}" for line in wrap(text, LINE))
        for text in result.words(BEGINNINGS.name) or [""] * len(influence)
    ]
    figure = go.Figure()
    figure.add_bar(
        x=np.arange(len(influence)),
        y=influence,
        marker_color=CATEGORICAL[0],
        customdata=begin,
        hovertemplate="group %{x}: %{y:.2f}%{customdata}<extra></extra>",
    )
    figure.add_hline(y=RARE, line={"color": CATEGORICAL[1], "dash": "dot"})
    style(figure, x_title="group of texts", y_title="share of the squared error", height=260)
    figure.update_xaxes(dtick=1)
    return figure.update_yaxes(range=[0, 1])


def _map(result: Result) -> go.Figure:
    """Draw the windows needed for the wanted error, per head ``[layer, head]``, on a log scale."""
    enough = result.values["enough"]
    ticks = log_ticks(1.0, max(10.0, float(np.nanmax(enough, initial=10.0))))
    texts = np.vectorize(_windows, otypes=[object])(enough)
    bar = {"tickvals": np.log10(ticks), "ticktext": [number(tick) for tick in ticks]}
    return head_map(
        np.log10(np.maximum(enough, 1.0)),
        hover_text="<br>%{customdata}",
        height=min(420, 170 + 40 * len(enough)),
        customdata=texts,
        colorbar={"title": "windows<br>(log scale)"} | bar,
    )


def _windows(enough: float) -> str:
    return counted(f"{enough:,.0f}", "window") if np.isfinite(enough) else "no number of windows"


VIEWS: Views = {
    "how-many-texts": (
        View("error [subset], enough wanted []", says=_one),
        View(
            "error [subset], enough law wanted []",
            _curve,
            reading="The error of the head's number, computed from two groups of texts, from half "
            "of the groups, and from all. Dashed: the fitted curve if the error falls as "
            "1/√windows (four times as many windows, half the error). Dotted: the wanted error. "
            "Where the two lines meet, there are enough windows.",
        ),
        View(
            "influence [left_out]",
            _by_group,
            "which texts decide the {measure}",
            says=_deciding,
            reading="How much of the squared error comes from each group of texts: the number is "
            "computed again without it. Dotted: what the largest of ten groups passes in 5 of 100 "
            "samples of normal numbers. A high bar says which texts decide the number, not that "
            "its interval is wrong. Of ten groups, windows 4, 14, 24, ... are those of number 4. "
            "Point at a bar for the first words of some of its texts.",
        ),
        View("error [subset layer head], enough wanted [layer head]", says=_all),
        View(
            "enough [layer head]",
            _map,
            "windows for the wanted error: {measure}",
            reading="How many windows give each head's number the wanted error: dark heads need "
            "few, bright ones many.",
        ),
    )
}
