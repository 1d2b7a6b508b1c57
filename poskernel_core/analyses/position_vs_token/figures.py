"""Position against token, and position 0, as figures."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.common.attention import only_visible
from poskernel_core.common.result import Result
from poskernel_core.plotting.conditions import mean_bars
from poskernel_core.plotting.curves import Look, add_by_offset, add_curve, curves
from poskernel_core.plotting.head_map import share_map
from poskernel_core.plotting.layout import LINE, SHARE, legend_under_title, set_title, style
from poskernel_core.plotting.palette import BLUE, GREEN, PURPLE, VERMILLION
from poskernel_core.plotting.parts import Index, part, query_of, title_of
from poskernel_core.plotting.patterns import stage_map

CONDITION_LOOKS = (  # both, position only, token only: the posts' blue, red and green
    Look(BLUE),
    Look(VERMILLION, "dash", "square"),
    Look(GREEN, "dot", "diamond"),
)
CASE_LOOKS = (Look(BLUE), Look(VERMILLION, "dash", "square"), Look(PURPLE, "dot", "diamond"))
ZERO_CANDIDATE = 2
"""The key of [B] in every case of the test of position 0."""


def zero_bars(zero: Result) -> go.Figure:
    """Draw the probability of [B] after the last [A] in the three cases of position 0."""
    cases = zero.words("cases")
    return mean_bars(
        cases,
        *part(zero, "probability"),
        title="What follows the last [A]",
        x_title="probability of [B] ± 1 s.e.",
        other=part(zero, "probability_other")[0],
    )


def look_back_heads(parts: Result) -> go.Figure:
    """Draw each head's largest attention to any offset, by position only; cells name the offset."""
    mass, error = part(parts, "largest_mass", condition=1)
    offset, _ = part(parts, "largest_offset", condition=1)
    hover = "by position only, %{customdata[1]} back: <b>%{z:.3f}</b> ± %{customdata[0]:.2g}"
    return share_map(
        mass,
        told=hover,
        title="How far heads look back",
        customdata=np.dstack([error, offset]),
        text=offset,
        texttemplate="%{text}",
        textfont_size=11,
    )


def score_conditions_figure(parts: Result, layer: Index, head: Index, query: Index) -> go.Figure:
    """Draw mean scores from `query` with both embeddings, with positions only, with tokens only."""
    title, y_title = "scores from position", "mean score ± 1 s.e. (nats)"
    return _conditions(parts, "score", (layer, head, query), title, y_title)


def pattern_conditions_figure(parts: Result, layer: Index, head: Index, query: Index) -> go.Figure:
    """Draw mean attention from position `query` in the same three conditions."""
    title, y_title = "attention from position", "share of attention ± 1 s.e."
    return _conditions(parts, "pattern", (layer, head, query), title, y_title)


def _conditions(
    parts: Result, name: str, at: tuple[Index, Index, Index], title: str, y_title: str
) -> go.Figure:
    layer, head, query = at
    means, errors = part(parts, name, layer=layer, head=head, query=query)
    n = query_of(parts, means[0]) if query is None else query
    pairs = zip(means[:, : n + 1], errors[:, : n + 1], strict=True)
    figure = curves(
        np.arange(n + 1),
        dict(zip(parts.words("conditions"), pairs, strict=True)),
        x_title="key position i (tokens)",
        y_title=y_title,
        where="key %{x}",
        looks=CONDITION_LOOKS,
    )
    figure.update_xaxes(dtick=1 if n < 13 else None)
    figure.update_yaxes(rangemode="tozero" if name == "pattern" else None)
    return set_title(figure, title_of(layer, head, f"{title} {n}"))


def condition_map_figure(parts: Result, layer: Index, head: Index, condition: int) -> go.Figure:
    """Draw one head's whole mean pattern in one condition, later keys left blank."""
    pattern, _ = part(parts, "pattern", layer=layer, head=head, condition=condition)
    title = title_of(layer, head, parts.words("conditions")[condition])
    shown = only_visible(pattern.astype(np.float64))
    return stage_map(shown, title=title, span=(0.0, 1.0), unit=SHARE)


def look_back_figure(parts: Result, layer: Index, head: Index) -> go.Figure:
    """Draw a head's mean attention by offset in the three conditions, up to half of the length."""
    means, errors = part(parts, "profile", layer=layer, head=head)
    offsets, _ = part(parts, "largest_offset", layer=layer, head=head)
    shown = means.shape[1] // 2 + 1
    pairs = zip(parts.words("conditions"), offsets, strict=True)
    names = [f"{name}, most at k = {offset}" for name, offset in pairs]
    each, figure = zip(means[:, :shown], errors[:, :shown], strict=True), go.Figure()
    rows = dict(zip(names, each, strict=True))
    add_by_offset(figure, np.arange(shown), rows, CONDITION_LOOKS)
    style(figure, x_title="offset k = n − i (tokens)", y_title=f"{SHARE} ± 1 s.e.")
    figure.update_yaxes(rangemode="tozero")
    return set_title(legend_under_title(figure), title_of(layer, head, "attention by offset"))


def position_zero_figure(zero: Result, layer: Index, head: Index) -> go.Figure:
    """Draw one head's attention from the last [A] in the three cases of the test of position 0.

    Keys are aligned so that [B] is the same key in every case; the values at [B] are ringed.
    """
    rows, errors = part(zero, "last_row", layer=layer, head=head)
    figure = go.Figure()
    keys = np.arange(rows.shape[1])
    for row, error, name, one in zip(rows, errors, zero.words("cases"), CASE_LOOKS, strict=True):
        add_curve(figure, keys, row, error, name=name, look=one, where="key %{x}", band=False)
        figure.add_scatter(
            x=[ZERO_CANDIDATE],
            y=[row[ZERO_CANDIDATE]],
            mode="markers",
            name=f"[B]: {name}",
            legendgroup=name,
            showlegend=False,
            hoverinfo="skip",
            cliponaxis=False,
            marker={"size": 16, "symbol": "circle-open", "color": one.colour, "line_width": 2},
        )
    style(
        figure,
        x_title=f"key, counted so that [B] is {ZERO_CANDIDATE} (tokens)",
        y_title=f"{SHARE} ± 1 s.e.",
        height=420,
    )
    figure.add_vline(
        x=ZERO_CANDIDATE,
        line={"color": LINE, "width": 1.2, "dash": "dot"},
        layer="below",
        annotation={"text": "[B]", "font_size": 13},
        annotation_position="top right",
    )
    figure.update_xaxes(dtick=1 if len(keys) <= 13 else None)
    figure.update_yaxes(range=[0, 1.15 * float(np.nanmax(rows))])  # room for the letter
    title = title_of(layer, head, "attention of the last [A]")
    return set_title(legend_under_title(figure), title)


def conditions_figure(result: Result) -> go.Figure:
    """Draw how far every head looks back by position, or one head's offsets, or one row."""
    if "head" in result.axes["pattern"]:
        return look_back_heads(result)
    if "query" in result.axes["pattern"]:
        return look_back_figure(result, None, None)
    return pattern_conditions_figure(result, None, None, None)


def zero_figure(result: Result) -> go.Figure:
    """Draw the probability of [B] in the three cases, or one head's attention in them."""
    if "head" in result.axes["last_row"]:
        return zero_bars(result)
    return position_zero_figure(result, None, None)
