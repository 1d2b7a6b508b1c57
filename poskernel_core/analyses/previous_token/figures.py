"""Raw scores, their ranking and the stages of attention as figures."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.common.result import Result
from poskernel_core.common.rounding import as_printed
from poskernel_core.common.specs import BAND
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.curves import Look, add_by_offset
from poskernel_core.plotting.head_map import head_map
from poskernel_core.plotting.layout import MUTED, THIRD, set_height
from poskernel_core.plotting.palette import BLUE, PURPLE, VERMILLION
from poskernel_core.plotting.patterns import robust_span, stage_map
from poskernel_core.plotting.scores import around_query

FINE = 256
"""Most rows of a map that a third of the page can resolve."""
STAGE_TITLES = {"score": "raw scores", "masked_score": "masked scores", "pattern": "probabilities"}


def scores_figure(head: Result, title: str, reach: int = BAND) -> go.Figure:
    """Draw a head's mean raw score by offset, ± 1 s.e., up to `reach` tokens off the diagonal.

    The part of the score that comes from position is a second curve. From each curve its mean over
    offsets is subtracted. The current and the previous token, k = 0 and 1, are marked with their
    deviation from the straight line through their neighbours.
    """
    shown = np.abs(head.coordinates["band"]) <= reach
    offsets, error = head.coordinates["band"][shown], head.errors["score_profile"][shown]
    score, position = (head.values[f"{name}_profile"][shown] for name in ("score", "position"))
    score, position = score - np.nanmean(score), position - np.nanmean(position)
    figure = go.Figure()
    rows = {"by position alone": (position, None), "mean raw score ± 1 s.e.": (score, error)}
    looks = Look(PURPLE, "dot", "diamond-open"), Look(BLUE)
    add_by_offset(figure, offsets, rows, looks)
    _add_kink(figure, {k: float(score[offsets == k][0]) for k in (-1, 0, 1, 2)})
    return around_query(figure, offsets, title).update_layout(hovermode="closest")


def _add_kink(figure: go.Figure, at: dict[int, float]) -> None:
    slope = (at[2] - at[-1]) / 3
    figure.add_scatter(
        x=[-2, 3],
        y=[at[-1] - slope, at[2] + slope],
        mode="lines",
        name="line through k = −1 and 2",
        line={"color": MUTED, "width": 2, "dash": "dash"},
        hoverinfo="skip",
    )
    edge = {"color": "white", "width": 1}
    for k, name, symbol in ((0, "current token", "diamond"), (1, "previous token", "square")):
        off = at[k] - (at[-1] + (k + 1) * slope)
        figure.add_scatter(
            x=[k],
            y=[at[k]],
            mode="markers",
            name=f"{name}: {as_printed(f'{off:+.2f}')} off the line",
            marker={"color": VERMILLION, "size": 12, "symbol": symbol, "line": edge},
            hovertemplate=f"<b>{name}, k = {k}</b><br>score %{{y:.3f}}"
            f"<br>{off:+.3f} against the line<extra></extra>",
        )


def stage_figure(
    stages: Result, name: str, zoom: tuple[int, int] | None, *, whole: bool
) -> go.Figure:
    """Draw one stage of attention: the whole text with the zoomed part outlined, or that part."""
    scores = stages.values["score"]
    first, stop = (0, len(scores)) if whole or zoom is None else zoom
    part = slice(first, stop)
    values = stages.values[name][part, part].astype(np.float64)
    if name == "pattern":
        hidden = np.isnan(stages.values["masked_score"][part, part])
        values = np.where(hidden, np.nan, values)
    span, unit = robust_span(scores[part, part].astype(np.float64)), "score (nats)"
    if name == "pattern":
        span, unit = (0.0, 1.0), "probability"
        if len(values) > FINE:  # a diagonal of one cell would be lost between the pixels
            values, span, unit = (
                np.log10(np.maximum(values, 1e-6)),
                (-5.0, 0.0),
                "log₁₀ probability",
            )
    figure = stage_map(
        values,
        title=STAGE_TITLES[name].capitalize(),
        first_query=first,
        first_key=first,
        tokens=stages.words("tokens") or None,
        span=span,
        window=zoom if whole else None,
        unit=unit,
    )
    return set_height(figure, THIRD)


def table_figure(ranked: Result) -> go.Figure:
    """Draw the ratio of the two largest diagonals of every head [layer, head]."""
    bar = {"title": "second / largest"}
    return head_map(ranked.values["ratio"], told=": %{z:.3f}", zmin=0, zmax=1, colorbar=bar)


def ranking_figure(result: Result) -> go.Figure:
    """Draw one head's mean raw scores, or the ratio of all heads."""
    if result.axes["score_profile"] == ("band",):
        return scores_figure(result, "Mean raw score by offset")
    return table_figure(result)


def stages_figure(result: Result) -> go.Figure:
    """Draw the attention of a whole text, or of one row of it."""
    if result.axes["pattern"] == ("query", "key"):
        return stage_figure(result, "pattern", None, whole=True)
    return by_axes(result.only("pattern"))
