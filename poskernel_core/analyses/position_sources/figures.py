"""Figures of the sources of position: one head's components, and who feeds whom."""

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from poskernel_core.analyses.claims import who
from poskernel_core.common.heads import head_name, largest_first, layer_of
from poskernel_core.common.result import Result
from poskernel_core.plotting.conditions import measured
from poskernel_core.plotting.layout import LINE, MUTED, legend_under_title, set_title, style
from poskernel_core.plotting.palette import BLUE, DIVERGING, GREEN, PURPLE, VERMILLION, fade

MOST = 14
"""Components with a bar of their own."""

LISTED = 24
"""Shares of all heads with a bar of their own."""

ROW = 24
"""Pixels of a component."""

COLOURS = {"head": BLUE, "MLP": VERMILLION, "embedding": GREEN, "other": PURPLE}
"""Colours of the components."""


def largest(result: Result, most: int = MOST) -> list[int]:
    """Return the components with the largest shares (or effects), in the order of the result."""
    name = "share" if np.isfinite(result.values["share"]).any() else "effect"
    size = np.abs(np.nan_to_num(result.values.get(name, result.values["share"])))
    return sorted(
        int(place) for place in np.argsort(-size, kind="stable")[:most] if size[place] > 0
    )


def bars_figure(head: Result, most: int = MOST) -> go.Figure:
    """Draw the shares of one head's largest components, lowest layer first, and their effects.

    The last bar is the sum of all others.
    """
    places, sources = largest(head, most), head.words("source")
    effects = "effect" in head.values
    figure = make_subplots(rows=1, cols=1 + effects, shared_yaxes=True, horizontal_spacing=0.04)
    share, error = head.values["share"], head.errors["share"]
    names = [sources[place] for place in places]
    rest = float(np.nansum(np.delete(share, places)))
    colours = [COLOURS[_kind(name)] for name in names]
    figure.add_bar(
        y=[*names, "all others"],
        x=[*share[places], rest],
        orientation="h",
        name="share, keys weighted by the kernel",
        marker_color=[*(fade(colour, 0.7) for colour in colours), fade(MUTED, 0.5)],
        error_x={"array": [*error[places], 0], "thickness": 1.5, "width": 3, "color": MUTED},
        text=[*(measured(*pair) for pair in zip(share[places], error[places], strict=True)),
              measured(rest, np.nan)],
        textposition="none",
        hovertemplate="<b>%{y}</b><br>share %{text}<extra></extra>",
        row=1, col=1,
    )  # fmt: skip
    figure.add_scatter(
        y=names,
        x=head.values["equal_share"][places],
        mode="markers",
        name="all keys weighted alike",
        marker={"symbol": "line-ns-open", "size": 11, "color": MUTED, "line": {"width": 2}},
        hovertemplate="<b>%{y}</b><br>share with equal weights %{x:.3g}<extra></extra>",
        row=1, col=1,
    )  # fmt: skip
    if effects:
        effect, wrong = head.values["effect"][places], head.errors["effect"][places]
        figure.add_bar(
            y=names,
            x=effect,
            orientation="h",
            name="effect of removing it",
            marker={"color": "rgba(0,0,0,0)", "line": {"width": 1.5, "color": colours}},
            error_x={"array": wrong, "thickness": 1.5, "width": 3, "color": MUTED},
            hovertemplate="<b>%{y}</b><br>TV distance %{x:.3g}<extra></extra>",
            row=1, col=2,
        )  # fmt: skip
    style(figure, x_title="", y_title="", height=150 + ROW * (len(names) + 1))
    figure.update_xaxes(title_text="share", zeroline=True, zerolinecolor=LINE, col=1)
    if effects:
        figure.update_xaxes(title_text="effect (TV)", rangemode="tozero", row=1, col=2)
    figure.update_yaxes(autorange="reversed", showgrid=False, type="category")
    figure.update_layout(bargap=0.3)
    return set_title(legend_under_title(figure), f"{who(head)}: what writes its position")


def map_figure(head: Result) -> go.Figure:
    """Draw what one head's largest components add to the score at each offset of one query."""
    places, sources, query = largest(head), head.words("source"), head.chosen["query"]
    score, error = head.values["score"][places], head.errors["score"][places]
    names, offsets = [sources[place] for place in places], head.coordinates["offset"]
    reach = max(1e-6, float(np.nanmax(np.abs(score), initial=0)))
    steps = np.linspace(0, 1, len(DIVERGING))
    figure = go.Figure()
    figure.add_heatmap(
        x=offsets,
        y=names,
        z=score,
        customdata=[[measured(*pair) for pair in zip(*rows, strict=True)]
                    for rows in zip(score, error, strict=True)],
        zmin=-reach,
        zmax=reach,
        colorscale=[[step, colour] for step, colour in zip(steps, DIVERGING, strict=True)],
        colorbar={"title": {"text": "nats"}, "thickness": 12, "outlinewidth": 0},
        hovertemplate="<b>%{y}</b>, offset %{x}<br>%{customdata} nats<extra></extra>",
    )  # fmt: skip
    style(figure, x_title="offset n − i (tokens)", y_title="", height=130 + ROW * len(names))
    figure.update_yaxes(autorange="reversed", showgrid=False, type="category")
    figure.update_xaxes(showgrid=False)
    return set_title(figure, f"{who(head)}: score by component and offset, n = {query}")


def turning_figure(head: Result) -> go.Figure:
    """Draw the two parts of each share of a rotary head: mean keys, turned, and the rest."""
    places, sources = largest(head), head.words("source")
    names, figure = [sources[place] for place in places], go.Figure()
    for value, label, colour in (
        ("turned_share", "supplies the constant key", BLUE),
        ("place_share", "knows its place", VERMILLION),
    ):
        figure.add_bar(
            y=names,
            x=head.values[value][places],
            orientation="h",
            name=label,
            marker_color=fade(colour, 0.7),
            error_x={"array": head.errors[value][places], "thickness": 1.5, "width": 3,
                     "color": MUTED},
            hovertemplate=f"<b>%{{y}}</b>, {label}<br>%{{x:.3g}}<extra></extra>",
        )  # fmt: skip
    style(figure, x_title="share of Var(a)", y_title="", height=150 + 34 * len(names))
    figure.update_yaxes(autorange="reversed", showgrid=False, type="category")
    figure.update_layout(bargap=0.25)
    return set_title(legend_under_title(figure), f"{who(head)}: constant keys, and the rest")


def list_figure(every: Result, most: int = LISTED) -> go.Figure:
    """Draw the largest shares of all heads, largest on top: a bar for each head and its source."""
    share, names = every.values["share"], every.words("source")
    places = [place for place in largest_first(share, most) if share[place] > 0]
    wrong = [float(every.errors["share"][place]) for place in places]
    figure = go.Figure().add_bar(
        y=[f"{head_name(layer, head)} ← {names[source]}" for layer, head, source in places],
        x=[float(share[place]) for place in places],
        orientation="h",
        marker_color=[fade(COLOURS[_kind(names[place[2]])], 0.7) for place in places],
        error_x={"array": wrong, "thickness": 1.5, "width": 3, "color": MUTED},
        customdata=[[head_name(*place[:2])] for place in places],
        hovertemplate="<b>%{y}</b><br>share %{x:.3g} ± %{error_x.array:.2g}<extra></extra>",
    )
    style(figure, x_title="share", y_title="", height=100 + ROW * len(places))
    figure.update_yaxes(autorange="reversed", showgrid=False, type="category")
    figure.update_xaxes(rangemode="tozero")
    return set_title(figure.update_layout(bargap=0.3), "Who feeds whom: the largest shares")


def _kind(name: str) -> str:
    if layer_of(name) >= 0:
        return "head"
    if name.startswith(("MLP", "layer")):
        return "MLP"
    return "embedding" if name.endswith("embedding") else "other"
