"""Position against token, and position 0, as figures."""

import plotly.graph_objects as go

from poskernel_core.analyses.induction.recency import head_map
from poskernel_core.common.result import Result
from poskernel_core.plotting.conditions import case_curves, condition_curves, mean_bars, pattern_map
from poskernel_core.plotting.parts import Index, last_key, part, title_of

ZERO_CANDIDATE = 2
"""The key of [B] in every case of the test of position 0."""


def zero_bars(zero: Result) -> go.Figure:
    """The probability of [B] after the last [A] in the three cases of the test of position 0."""
    cases = zero.words("cases")
    return mean_bars(
        cases,
        *part(zero, "probability"),
        title="What follows the last [A]",
        x_title="probability of [B] ± 1 s.e.",
        other=part(zero, "probability_other")[0],
    )


def look_back_heads(parts: Result) -> go.Figure:
    """Every head's largest attention to one offset by position only; cells name the offset."""
    mass, error = part(parts, "largest_mass", condition=1)
    offset, _ = part(parts, "largest_offset", condition=1)
    hover = "by position only, %{customdata[1]} back: <b>%{z:.3f}</b> ± %{customdata[0]:.2g}"
    figure = head_map(mass, [error, offset], hover, "How far heads look back")
    return figure.update_traces(text=offset, texttemplate="%{text}", textfont_size=11)


def score_conditions_figure(parts: Result, layer: Index, head: Index, query: Index) -> go.Figure:
    """Mean scores from position `query` with both embeddings, positions only and tokens only."""
    title, y_title = "scores from position", "mean score ± 1 s.e. (nats)"
    return _conditions(parts, "score", (layer, head, query), title, y_title)


def pattern_conditions_figure(parts: Result, layer: Index, head: Index, query: Index) -> go.Figure:
    """Mean attention from position `query` in the same three conditions."""
    title, y_title = "attention from position", "share of attention ± 1 s.e."
    return _conditions(parts, "pattern", (layer, head, query), title, y_title)


def _conditions(
    parts: Result, name: str, at: tuple[Index, Index, Index], title: str, y_title: str
) -> go.Figure:
    layer, head, query = at
    means, errors = part(parts, name, layer=layer, head=head, query=query)
    n = last_key(means[0]) if query is None else query
    figure = condition_curves(
        means[:, : n + 1],
        errors[:, : n + 1],
        parts.words("conditions"),
        title=title_of(layer, head, f"{title} {n}"),
        x_title="key position i (tokens)",
        y_title=y_title,
        where="key %{x}",
    )
    return figure.update_yaxes(rangemode="tozero") if name == "pattern" else figure


def condition_map_figure(parts: Result, layer: Index, head: Index, condition: int) -> go.Figure:
    """One head's whole mean pattern in one condition."""
    pattern, _ = part(parts, "pattern", layer=layer, head=head, condition=condition)
    return pattern_map(pattern, title=title_of(layer, head, parts.words("conditions")[condition]))


def look_back_figure(parts: Result, layer: Index, head: Index) -> go.Figure:
    """One head's mean attention by offset in the three conditions, up to half of the length."""
    means, errors = part(parts, "profile", layer=layer, head=head)
    offsets, _ = part(parts, "largest_offset", layer=layer, head=head)
    shown = means.shape[1] // 2 + 1
    pairs = zip(parts.words("conditions"), offsets, strict=True)
    names = [f"{name}, most at k = {offset}" for name, offset in pairs]
    figure = condition_curves(
        means[:, :shown],
        errors[:, :shown],
        names,
        title=title_of(layer, head, "attention by offset"),
        x_title="offset k = n − i (tokens)",
        y_title="share of attention ± 1 s.e.",
        where="%{x} back",
    )
    return figure.update_yaxes(rangemode="tozero")


def position_zero_figure(zero: Result, layer: Index, head: Index) -> go.Figure:
    """One head's attention from the last [A] in the three cases of the test of position 0."""
    rows, errors = part(zero, "last_row", layer=layer, head=head)
    return case_curves(
        rows,
        errors,
        zero.words("cases"),
        ZERO_CANDIDATE,
        title=title_of(layer, head, "attention of the last [A]"),
    )


def conditions_figure(result: Result) -> go.Figure:
    """How far every head looks back by position, or one head's offsets, or one row of it."""
    if "head" in result.axes["pattern"]:
        return look_back_heads(result)
    if "query" in result.axes["pattern"]:
        return look_back_figure(result, None, None)
    return pattern_conditions_figure(result, None, None, None)


def zero_figure(result: Result) -> go.Figure:
    """The probability of [B] in the three cases, or one head's attention in them."""
    if "head" in result.axes["last_row"]:
        return zero_bars(result)
    return position_zero_figure(result, None, None)
