"""Raw scores, their ranking and the stages of attention as figures."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.common.result import Result
from poskernel_core.common.specs import BAND
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.head_map import head_map
from poskernel_core.plotting.layout import THIRD, set_height
from poskernel_core.plotting.palette import SCALE
from poskernel_core.plotting.patterns import robust_span, stage_map
from poskernel_core.plotting.scores import score_profile_figure

FINE = 256
"""Maps of more rows than this are finer than the pixels of a third of the page."""
STAGE_TITLES = {"score": "raw scores", "masked_score": "masked scores", "pattern": "probabilities"}


def scores_figure(head: Result, title: str, reach: int = BAND) -> go.Figure:
    """One head's mean raw score up to `reach` tokens off the diagonal; its part by position."""
    shown = np.abs(head.coordinates["band"]) <= reach
    score, position = (head.values[f"{name}_profile"][shown] for name in ("score", "position"))
    return score_profile_figure(
        head.coordinates["band"][shown],
        score - np.nanmean(score),
        head.errors["score_profile"][shown],
        position=position - np.nanmean(position),
        title=title,
    )


def stage_figure(
    stages: Result, name: str, zoom: tuple[int, int] | None, *, whole: bool
) -> go.Figure:
    """One stage of attention: the whole text with the window outlined, or the window alone."""
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
    """The ratio of the two largest diagonals of every head [layer, head]."""
    return head_map(ranked.values["ratio"], "second / largest", (0.0, 1.0), SCALE)


def ranking_figure(result: Result) -> go.Figure:
    """One head's mean raw scores, or the ratio of all heads."""
    if result.axes["score_profile"] == ("band",):
        return scores_figure(result, "Mean raw score by offset")
    return table_figure(result)


def stages_figure(result: Result) -> go.Figure:
    """The attention of a whole text, or of one row of it."""
    if result.axes["pattern"] == ("query", "key"):
        return stage_figure(result, "pattern", None, whole=True)
    return by_axes(result.only("pattern"))
