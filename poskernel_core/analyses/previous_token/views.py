"""What is drawn and said of previous-token heads, and of the stages of attention on a text."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import (
    ATTENTION,
    Claim,
    Head,
    Number,
    number_of,
    of_all,
    param,
    spoken,
    told,
    who,
)
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.kernels.claims import look_back, profile_said
from poskernel_core.analyses.kernels.views import PROFILE
from poskernel_core.analyses.previous_token.spec import DIAGONALS
from poskernel_core.analyses.views import View, Views, heads_view
from poskernel_core.common.jackknife import Estimate
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import as_printed, brief
from poskernel_core.common.specs import BAND
from poskernel_core.plotting.curves import Look, add_by_offset
from poskernel_core.plotting.head_map import head_map
from poskernel_core.plotting.layout import MUTED, THIRD, set_height
from poskernel_core.plotting.palette import BLUE, PURPLE, VERMILLION
from poskernel_core.plotting.patterns import robust_span, stage_map
from poskernel_core.plotting.scores import around_query

FINE = 256
"""Most rows of a map that a third of the page can resolve."""
STAGES = {"score": "raw scores", "masked_score": "masked scores", "pattern": "probabilities"}
HOW = {
    "by position": " by position",
    "negative self-attention": " by negative self-attention",
    "aggregator": ", at what earlier heads wrote there",
}


def largest(head: Head) -> Iterator[Claim]:
    """Yield the diagonal that takes most of a head's attention, and how it comes about."""
    mass, back = head.number("largest_mass"), head.number("largest_offset").value
    if math.isnan(mass.value):
        return
    (claim,) = look_back(int(back), mass, HOW.get(head.word("kind") or "", "") if back else "")
    if claim.passes == "no" and (diagonal := head.word("diagonal")) not in (None, DIAGONALS[-1]):
        claim = replace(claim, fails=f"{claim.fails}, with a {diagonal} in the scores")
    yield claim


def scores(head: Result, reach: int = BAND) -> go.Figure:
    """Draw a head's mean raw score by offset, ± 1 s.e., up to `reach` tokens off the diagonal.

    The part of the score that comes from position is a second curve. From each curve its mean over
    offsets is subtracted. The current and the previous token, k = 0 and 1, are marked with their
    deviation from the straight line through their neighbours.
    """
    drawn = np.abs(head.coordinates["band"]) <= reach
    offsets, error = head.coordinates["band"][drawn], head.errors["score_profile"][drawn]
    score, position = (head.values[f"{name}_profile"][drawn] for name in ("score", "position"))
    score, position = score - np.nanmean(score), position - np.nanmean(position)
    figure = go.Figure()
    rows = {"by position alone": (position, None), "mean raw score ± 1 s.e.": (score, error)}
    looks = Look(PURPLE, "dot", "diamond-open"), Look(BLUE)
    add_by_offset(figure, offsets, rows, looks)
    _add_kink(figure, {k: float(score[offsets == k][0]) for k in (-1, 0, 1, 2)})
    return around_query(figure, offsets).update_layout(hovermode="closest")


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


def largest_diagonals(result: Result) -> str:
    """Say in how many heads the previous token's diagonal is the largest, and where it stands out.

    Which diagonal is the largest has no error; how far it stands out has.
    """
    first, ratio = result.values["largest_offset"] == 1, result.values["ratio"]
    sizes = first.astype(float)
    there = Condition(Estimate(sizes, sizes, sizes), 1)
    clear = discovered(result, there, Condition("ratio", param(result, "clean"), "below"))
    count, known = int(first.sum()), int(np.isfinite(ratio).sum())
    return (
        f"The previous token is the largest diagonal of {of_all(count, known).lower()}; it stands "
        f"out in {clear.count or 'none'}{clear.beside}, where the second is less than "
        f"{param(result, 'clean'):g} of it."
    )


def _contrast(result: Result) -> str:
    """Say whether a diagonal of the raw scores is dark or bright.

    As where heads are classified, it must also exceed some standard errors, and be the larger one.
    """
    own, previous = (number_of(result, f"{name}_contrast") for name in ("self", "previous"))
    dark = -own.value >= previous.value
    name = "self_contrast" if dark else "previous_contrast"
    number, verb = (own, "below") if dark else (previous, "above")
    size = -number.value if dark else number.value
    passes = number.passes(0)
    noise = param(result, "errors") * float(result.errors[name])
    if passes != ("no" if dark else "yes") or size <= noise:
        return ""
    token = "the current token itself" if dark else "the previous token"
    return (
        f"On average {who(result)} scores {token} {brief(size)} nats {verb} the straight line "
        "through the scores of the next token and of the one two back."
    )


def stage(
    result: Result,
    stage: str = "pattern",
    zoom: tuple[int, int] | None = None,
    whole: bool = True,
) -> go.Figure:
    """Draw one stage of attention: the whole text with the zoomed part outlined, or that part."""
    scores = result.values["score"]
    first, stop = (0, len(scores)) if whole or zoom is None else zoom
    part = slice(first, stop)
    values = result.values[stage][part, part].astype(np.float64)
    if stage == "pattern":
        hidden = np.isnan(result.values["masked_score"][part, part])
        values = np.where(hidden, np.nan, values)
    span, unit = robust_span(scores[part, part].astype(np.float64)), "score (nats)"
    if stage == "pattern":
        span, unit = (0.0, 1.0), "probability"
        if len(values) > FINE:  # a diagonal of one cell would be lost between the pixels
            values, span = np.log10(np.maximum(values, 1e-6)), (-5.0, 0.0)
            unit = "log₁₀ probability"
    figure = stage_map(
        values,
        title=STAGES[stage].capitalize(),
        first_query=first,
        first_key=first,
        tokens=result.words("tokens") or None,
        span=span,
        window=zoom if whole else None,
        unit=unit,
    )
    return set_height(figure, THIRD)


def _stages(result: Result) -> str:
    pattern, head = result.values["pattern"].astype(float), who(result)
    inner = pattern[1:, 1:]  # without the start token, as in profiles
    if len(inner) < 2:
        return ""
    masses = [float(np.diagonal(inner, -back).mean()) for back in range(len(inner) // 2 + 1)]
    back = int(np.argmax(masses))
    first = float(pattern[1:, 0].mean())
    if max(masses[back], first) < ATTENTION:
        return ""
    if first > masses[back]:
        return f"{head} gives the first key {brief(first)} of its attention on this text."
    return told(result, look_back(back, Number.within(masses[back], 0.0), " on this text"))


def ratios(ranked: Result) -> go.Figure:
    """Draw the ratio of the two largest diagonals of every head [layer, head]."""
    bar = {"title": "second / largest"}
    return head_map(ranked.values["ratio"], hover_text=": %{z:.3f}", zmin=0, zmax=1, colorbar=bar)


VIEWS: Views = {
    "previous-token": (
        View("largest_mass largest_offset []", says=spoken(largest)),
        View(
            "score_profile position_profile [band], self_contrast previous_contrast []",
            scores,
            "mean raw score by offset",
            says=_contrast,
            reading="The mean raw score near the main diagonal, before the mask: later tokens "
            "(left) have one too. Dotted: the part due to position alone. A dip at the own token "
            "is negative self-attention; a peak one token back marks an aggregator. The dashed "
            "line joins the neighbours on both sides; dip and peak are measured from it.",
        ),
        View("score_profile position_profile [band]", scores, "mean raw score by offset"),
        View("self_contrast previous_contrast []", says=_contrast),
        View(
            "ratio [layer head]",
            ratios,
            reading="One row per head. *Second / largest*: the second-largest diagonal of the mean "
            "attention over the largest; near 0 the head attends to one offset only. *Contrast*: "
            "how far the mean raw score at offset 0 (own token) or 1 (previous token) lies above "
            "the straight line through its neighbours; a negative contrast is a dark diagonal, a "
            "positive one a bright diagonal. *Kind*: how a head comes to the previous token. *By "
            "position*; by *negative self-attention*, which avoids the own token (a dark main "
            "diagonal); or as an *aggregator* of what earlier heads wrote one token back (a bright "
            "first diagonal). *No diagonal stands out* where the second is nearly as large as the "
            "largest. Click a row to select the head on all pages.",
            explains="self_contrast previous_contrast kind",
        ),
        heads_view("previous_mass", "attention to the previous token", ATTENTION),
        heads_view("ratio", "second diagonal over the largest", "clean", below=True),
        PROFILE,
        View("profile [...]", says=profile_said),
    ),
    "stages": (
        View(
            "score masked_score pattern [query key]",
            stage,
            reading="Left: the raw scores of every pair of positions, later keys included. Middle: "
            "the masked scores, in the same colours. Right: the softmax of the rows, the "
            "attention. Above: the whole text (attention on a log scale); below: the window in the "
            "red square. Hover for the tokens.",
        ),
        View("pattern [query key]", says=_stages),
    ),
}

CLAIMS = {"previous-token": (largest,)}
