"""Figures of the search in the bag, and of a neuron's sub-latents."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from poskernel_core.common.result import Result
from poskernel_core.figures.layout import MUTED, quoted, style
from poskernel_core.figures.palette import BLUE, VERMILLION

__all__ = ["latents_figure", "nearest_figure", "scores_figure"]

NAMED = 5


def scores_figure(scores: Result) -> go.Figure:
    """Every neuron's score for the words, largest first; both ends are named."""
    score = scores.values["score"]
    order = np.argsort(-score, kind="stable")
    words = ", ".join(quoted(word) for word in scores.words("words")[:NAMED])
    figure = go.Figure(
        go.Scatter(
            x=np.arange(1, len(order) + 1),
            y=score[order],
            mode="lines",
            line_color=BLUE,
            customdata=order,
            name="score",
            fill="tozeroy",
            hovertemplate="<b>neuron %{customdata}</b><br>%{y:.2f} sd<extra></extra>",
        )
    )
    named = np.r_[:NAMED, len(order) - NAMED : len(order)] if len(order) > 2 * NAMED else []
    for place in named:
        figure.add_annotation(
            x=place + 1,
            y=score[order[place]],
            text=str(order[place]),
            showarrow=False,
            xanchor="left" if place < NAMED else "right",
            yshift=8 if place < NAMED else -8,
            font_size=11,
        )
    style(
        figure,
        x_title=f"neurons, ranked by score for {words}",
        y_title="score (standard deviations)",
        height=320,
    )
    return figure


def nearest_figure(found: Result) -> go.Figure:
    """The nearest tokens' cosines: of extended embeddings, and of the plain ones."""
    words = [quoted(word) for word in found.words("words")]
    places = np.arange(len(words))
    figure = go.Figure()
    for name, value, colour in (
        ("extended embeddings", "cosine", BLUE),
        ("token embeddings", "plain_cosine", VERMILLION),
    ):
        figure.add_bar(
            x=places,
            y=found.values[value],
            name=name,
            marker_color=colour,
            customdata=words,
            hovertemplate="%{customdata}<br>cosine %{y:.3f}<extra></extra>",
        )
    style(figure, x_title="tokens, nearest first", y_title="cosine", height=340)
    return figure.update_xaxes(tickvals=places, ticktext=words, tickangle=-45)


def latents_figure(found: Result) -> go.Figure:
    """Share of each sub-latent in the variance of a neuron's contributions, and what is left."""
    share, rest = found.values["share"], float(found.values["rest"])
    top = [" ".join(quoted(word) for word in row[:NAMED]) for row in found.texts["top_words"]]
    unlisted = max(0.0, 1 - rest - float(share.sum()))
    names = [*(str(place + 1) for place in range(len(share))), "others", "rest"]
    figure = go.Figure(
        go.Bar(
            x=names,
            y=[*share, unlisted, rest],
            customdata=[*top, "sub-latents not listed", "outside of all components"],
            marker_color=[BLUE] * len(share) + [MUTED] * 2,
            hovertemplate="<b>%{x}</b>: %{y:.1%}<br>%{customdata}<extra></extra>",
        )
    )
    style(figure, x_title="sub-latent", y_title="share of variance", height=300)
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    return figure.update_xaxes(type="category")
