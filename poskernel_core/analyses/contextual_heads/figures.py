"""Contextual heads as figures."""

import html
import math

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.kernels.figures import GROUP_LOOKS
from poskernel_core.analyses.pictures import rows_named
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.plotting.conditions import measured
from poskernel_core.plotting.curves import Look, add_curve, curves
from poskernel_core.plotting.histogram import Span, add_ring, histogram, log_range, log_span
from poskernel_core.plotting.layout import LINE, MUTED, legend_under_title, set_title, style
from poskernel_core.plotting.palette import BLUE, CATEGORICAL, VERMILLION, fade


def plane(heads: Result, place: tuple[int, int] | None = None) -> go.Figure:
    """Draw every head's ETC against the CV of its denominator, with one symbol per group.

    The region of contextual heads is shaded; a CV of 0 is drawn at the lower edge. The head at
    ``place``, else the steadiest broad one, is ringed.
    """
    spread, etc = heads.values["denominator_cv"], heads.values["etc"]
    broad, steady = (float(heads.params[name]) for name in ("broad", "steady"))
    layer, head = place or _steadiest(spread, etc < broad)
    x_span = log_span(etc, broad)
    y_span = log_span(spread, steady)
    floor = y_span[0] * 1.15
    figure = go.Figure()
    _add_region(figure, (broad, steady), x_span, y_span)
    for code, label in enumerate(heads.labels["group"]):
        _add_group(figure, heads, code, label, floor)
    at = etc[layer, head], np.maximum(spread[layer, head], floor)
    inwards = "right" if at[0] < math.sqrt(x_span[0] * x_span[1]) else "left"
    # the name is written away from the nearer edge, which would cut it off
    add_ring(figure, at[:1], at[1:], head_name(layer, head), inwards)
    y_title = "CV of the softmax denominator ± 1 s.e.<br>(log scale)"
    style(figure, x_title="ETC (tokens, log scale)", y_title=y_title, height=480)
    figure.update_xaxes(**log_range(x_span))
    figure.update_yaxes(**log_range(y_span))
    note = f" ({hidden} without a CV)" if (hidden := int(np.isnan(spread).sum())) else ""
    return set_title(legend_under_title(figure), f"Broad and steady heads{note}")


def _steadiest(spread: np.ndarray, narrow: np.ndarray) -> tuple[int, int]:
    """Return the place of the smallest CV; broad heads come before narrow ones."""
    order = spread + narrow * (1 + np.nanmax(spread))
    layer, head = np.unravel_index(int(np.nanargmin(order)), order.shape)
    return int(layer), int(head)


def _add_region(figure: go.Figure, limits: Span, x_span: Span, y_span: Span) -> None:
    broad, steady = limits
    line = {"color": LINE, "width": 1.2, "dash": "dot"}
    figure.add_vline(x=broad, line=line, layer="below")
    if steady <= 0:
        return
    figure.add_hline(y=steady, line=line, layer="below")
    corners = {"x0": broad, "x1": x_span[1], "y0": y_span[0], "y1": steady}
    shade = {"line_width": 0, "fillcolor": fade(BLUE, 0.1), "layer": "below"}
    figure.add_shape(type="rect", **corners, **shade)


def _add_group(figure: go.Figure, heads: Result, code: int, label: str, floor: float) -> None:
    etc, spread, predicted = (
        heads.values[name] for name in ("etc", "denominator_cv", "predicted_cv")
    )
    error = heads.errors["denominator_cv"]
    places = np.argwhere((heads.values["group"] == code) & np.isfinite(spread))
    if not len(places):
        return
    at = tuple(places.T)
    symbol, colour = GROUP_LOOKS[code % len(GROUP_LOOKS)]
    drawn = np.maximum(spread[at], floor)
    bars = np.nan_to_num(np.abs(error[at]))
    text = [
        f"<b>{head_name(*place)}</b>, {label}<br>ETC {etc[place]:.4g}<br>CV "
        f"{measured(spread[place], error[place])}<br>predicted CV "
        f"{measured(predicted[place], math.nan)}"
        for place in map(tuple, places.tolist())
    ]
    figure.add_scatter(
        x=etc[at],
        y=drawn,
        mode="markers",
        name=label,
        text=text,
        hovertemplate="%{text}<extra></extra>",
        customdata=places,
        marker={
            "symbol": symbol,
            "color": colour,
            "size": 9,
            "line": {"width": 2, "color": colour},
        },
        error_y={
            "array": bars,
            "arrayminus": np.minimum(bars, 0.95 * drawn),
            "symmetric": False,
            "thickness": 1.2,
            "width": 0,
            "color": fade(colour, 0.6),
        },
    )


def variation(result: Result) -> go.Figure:
    """Draw one head's CV of the softmax denominator over windows, observed and predicted."""
    figure, query = go.Figure(), result.coordinates["query"]
    add_curve(
        figure,
        query,
        result.values["denominator_cv"],
        result.errors["denominator_cv"],
        name="observed ± 1 s.e.",
        look=Look(BLUE),
        where="position %{x}",
    )
    figure.add_scatter(
        x=query,
        y=result.values["predicted_cv"],
        mode="lines+markers",
        name="predicted for independent content",
        customdata=result.values["etc"],
        line={"color": VERMILLION, "width": 2.2, "dash": "dash"},
        marker={"color": VERMILLION, "symbol": "square", "size": 6},
        hovertemplate="<b>predicted</b>, position %{x}<br>%{y:.3g}"
        "<br>ETC %{customdata:.4g}<extra></extra>",
    )
    y_title = "CV of the softmax denominator"
    style(figure, x_title="query position n (tokens)", y_title=y_title)
    figure.update_yaxes(rangemode="tozero")
    return legend_under_title(figure)


def denominators(result: Result, log_y: bool = False) -> go.Figure:
    """Draw one head's denominator in every window, the mean, and each own text in a colour."""
    values, query = result.values["denominator"], result.coordinates["query"]
    ends = np.full((len(values), 1), np.nan)  # a gap between one text and the next
    figure = go.Figure().add_scatter(
        x=np.tile(np.append(query, query[-1]), len(values)),
        y=np.hstack([values, ends]).ravel(),
        mode="lines",
        name=counted(len(values), "window"),
        line={"color": fade(MUTED, 0.75), "width": 1},
        customdata=np.repeat(np.arange(len(values)), len(query) + 1),
        hovertemplate="window %{customdata}, position %{x}<br>%{y:.3g}<extra></extra>",
    )
    own = result.values.get("own_denominator", np.empty((0, len(query))))
    span = log_span(np.vstack([values, own]))
    add_curve(
        figure,
        query,
        result.values["mean"],
        result.errors["mean"],
        name="mean ± 1 s.e.",
        look=Look(BLUE),
        where="position %{x}",
        floor=span[0] if log_y else None,
    )
    figure.data[-1].line.width = 4
    for index, one in enumerate(own):
        title = html.escape(result.texts["own_texts"][index], quote=False)
        colour = CATEGORICAL[1 + index % 5]  # blue is the mean's
        figure.add_scatter(
            x=query,
            y=one,
            mode="lines+markers",
            name=title,
            line={"color": colour, "width": 2.2, "dash": ("solid", "dash", "dot")[index % 3]},
            marker={"symbol": ("square", "diamond", "x", "star")[index % 4], "size": 7},
            hovertemplate="<b>%{fullData.name}</b>, position %{x}<br>%{y:.3g}<extra></extra>",
        )
    y_title = f"denominator Z (weight{', log scale' if log_y else ''})"
    style(figure, x_title="query position n (tokens)", y_title=y_title)
    figure.update_yaxes(**log_range(span) if log_y else {"rangemode": "tozero"})
    return legend_under_title(figure)


def at_distances(result: Result) -> go.Figure:
    """Draw one head's attention to an earlier duplicate, and to another token placed there."""
    distance = result.coordinates["distance"]
    names = {"duplicate_attention": "the same token", "baseline": "another token there"}
    figure = curves(
        distance,
        rows_named(result, names),
        x_title="distance of the earlier duplicate (tokens, log scale)",
        y_title="share of attention ± 1 s.e.",
        where="%{x} back",
        looks=(Look(BLUE), Look(MUTED, "dot", "circle-open")),
        band=False,
    )
    figure.update_xaxes(type="log", tickvals=distance, ticktext=[f"{tick}" for tick in distance])
    return figure.update_yaxes(rangemode="tozero")


def weights(result: Result) -> go.Figure:
    """Draw a histogram of tokens by content weight, in nats."""
    title = "log content weight of a token (nats; 0 = position alone)"
    return histogram(result.values["log_weight"], "nats").update_xaxes(title_text=title)
