"""Figures of contextual neurons, and of the bag's contributions to them."""

import html
from itertools import islice
from typing import Any

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.bag.quality import WORST
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import as_printed
from poskernel_core.plotting.conditions import measured
from poskernel_core.plotting.curves import Look
from poskernel_core.plotting.histogram import add_ring, histogram, log_range, log_span
from poskernel_core.plotting.layout import LINE, MUTED, legend_under_title, quoted, set_title, style
from poskernel_core.plotting.palette import BLUE, CATEGORICAL, GREEN, PURPLE, VERMILLION

NAMED = 5
BEST = 5  # neurons named
CLEAR = "rgba(0,0,0,0)"
LABEL = 0.09  # height of a neuron's number on the axis of cosines, which spans -0.2 to 1
WORDS = 5  # tokens of either end named in hover
ENDS = 3  # tokens of either end named in the histogram
LONGEST = 18  # letters of a word written into a figure
PREDICTION_PARTS = {
    "bag": ("bag of tokens", Look(GREEN)),
    "position": ("position", Look(PURPLE, "dot")),
    "others": ("other heads", Look(CATEGORICAL[4], "dash")),
    "direct": ("current token", Look(MUTED, "dashdot")),
}
"""The parts of a prediction: names and looks."""
TRACE_CURVES = {"predicted": ("predicted", Look(VERMILLION, "dash")), "true": ("true", Look(BLUE))}
HOVER = {"drive": "drive", "drive_share": "share", "r2": "R²", "sign_agreement": "sign agreement"}
"""What hover says of a neuron."""


def ranked_scores(scores: Result) -> go.Figure:
    """Draw every neuron's score for the words, largest first; neurons at both ends are named."""
    score = scores.values["score"]
    order = np.argsort(-score, kind="stable")
    words = ", ".join(quoted(word) for word in scores.words("words")[:NAMED])
    figure = go.Figure().add_scatter(
        x=np.arange(1, len(order) + 1),
        y=score[order],
        mode="lines",
        line_color=BLUE,
        customdata=order,
        name="score",
        fill="tozeroy",
        hovertemplate="<b>neuron %{customdata}</b><br>%{y:.2f} sd<extra></extra>",
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
    x_title = f"neurons, ranked by score for {words}"
    return style(figure, x_title=x_title, y_title="score (standard deviations)", height=320)


def nearest(result: Result) -> go.Figure:
    """Draw the nearest tokens' cosines, of extended and of plain embeddings."""
    words = [quoted(word) for word in result.words("words")]
    places = np.arange(len(words))
    figure = go.Figure()
    names = {"cosine": "extended embeddings", "plain_cosine": "token embeddings"}
    for (value, name), colour in zip(names.items(), (BLUE, VERMILLION), strict=True):
        figure.add_bar(
            x=places,
            y=result.values[value],
            name=name,
            marker_color=colour,
            customdata=words,
            hovertemplate="%{customdata}<br>cosine %{y:.3f}<extra></extra>",
        )
    style(figure, x_title="tokens, nearest first", y_title="cosine", height=340)
    return figure.update_xaxes(tickvals=places, ticktext=words, tickangle=-45)


def latents(result: Result) -> go.Figure:
    """Draw each sub-latent's share of the variance of a neuron's contributions, and the rest."""
    share, rest = result.values["share"], float(result.values["rest"])
    top = [" ".join(quoted(word) for word in row[:NAMED]) for row in result.texts["top_words"]]
    unlisted = max(0.0, 1 - rest - float(share.sum()))
    names = [*(str(place + 1) for place in range(len(share))), "others", "rest"]
    figure = go.Figure().add_bar(
        x=names,
        y=[*share, unlisted, rest],
        customdata=[*top, "sub-latents not listed", "outside of all components"],
        marker_color=[BLUE] * len(share) + [MUTED] * 2,
        hovertemplate="<b>%{x}</b>: %{y:.1%}<br>%{customdata}<extra></extra>",
    )
    style(figure, x_title="sub-latent", y_title="share of variance", height=300)
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    return figure.update_xaxes(type="category")


def neurons(result: Result, neuron: int | None = None, rank_by: str = "drive_share") -> go.Figure:
    """Draw every neuron's share of variance from the bag against the R² of its prediction.

    The neurons with the largest `rank_by`, a value per neuron, are marked; `neuron`, else the one
    that the bag drives most, is ringed.
    """
    share, r2, rank = (result.values[name] for name in ("drive_share", "r2", rank_by))
    neuron = int(np.nanargmax(share)) if neuron is None else neuron
    span = log_span(share)
    x, y = np.maximum(share, 1.15 * span[0]), np.maximum(r2, WORST)
    first = np.argsort(-np.nan_to_num(rank, nan=-np.inf), kind="stable")[: 2 * BEST]
    rest = np.setdiff1d(np.arange(len(x)), first)
    by = "share of variance" if rank_by == "drive_share" else rank_by.replace("_", " ")
    largest = f"{len(first)} largest by {by}", first, VERMILLION, "diamond"
    figure = go.Figure()
    for name, places, colour, symbol in (("neurons", rest, BLUE, "circle"), largest):
        figure.add_scatter(
            x=x[places],
            y=y[places],
            mode="markers",
            name=name,
            customdata=[[place, _neuron_hover(result, place)] for place in places.tolist()],
            hovertemplate="%{customdata[1]}<extra></extra>",
            marker={
                "color": colour,
                "opacity": 0.75,
                "size": 6 if symbol == "circle" else 9,
                "symbol": np.where(r2[places] < WORST, "triangle-down", symbol),
            },
        )
    chosen: dict[str, Any] = {"customdata": [[neuron]], "cliponaxis": False}
    add_ring(figure, x[[neuron]], y[[neuron]], f"{neuron}", "left", **chosen)
    x_title, y_title = "share of variance from the bag", "R² of the prediction (share of variance)"
    style(figure, x_title=f"{x_title} (log scale)", y_title=y_title, height=480)
    figure.update_xaxes(**log_range(span))
    return legend_under_title(figure)


def _neuron_hover(result: Result, place: int) -> str:
    lines = [
        f"{label} {measured(result.values[name][place], result.errors[name][place])}"
        for name, label in HOVER.items()
    ]
    for name, sign in (("top_words", "+"), ("bottom_words", "−")):
        lines.append(f"{sign} {' '.join(map(_short, result.texts[name][place, :WORDS]))}")
    return "<br>".join([f"<b>neuron {place}</b>", *lines])


def _short(word: str) -> str:
    return quoted(word if len(word) <= LONGEST else f"{word[: LONGEST - 1]}…")


def _signed(value: float) -> str:
    return as_printed(f"{value:.3g}")


def contributions(neuron: Result) -> go.Figure:
    """Draw a histogram of tokens by contribution to one neuron; tokens at both ends are named.

    The largest are named in the upper right corner, above all bars, the smallest above their own.
    """
    values = neuron.values["contribution"]
    figure = histogram(values, "pre-activation")
    figure.update_xaxes(title_text="contribution of a token in the bag (pre-activation)")
    bars = figure.data[0]
    named = min(ENDS, int(np.isfinite(values).sum()) // 2)
    ends = [np.nanmin(values, initial=0.0), np.nanmax(values, initial=0.0)]
    pad = 0.35 * max(ends[1] - ends[0], 1e-6)
    figure.update_xaxes(range=[ends[0] - pad, ends[1] + pad])
    floor, top = figure.layout.yaxis.range
    step = 0.12 * (top - floor)
    figure.update_yaxes(range=[floor, top + step * named])
    for side in ("top", "bottom"):
        pairs = zip(neuron.texts[f"{side}_words"], neuron.values[f"{side}_value"], strict=True)
        for index, (word, value) in enumerate(islice(pairs, named)):
            bar = int(np.argmin(np.abs(np.asarray(bars.x) - value)))
            corner = {"axref": "x", "ax": ends[1] + pad, "ayref": "y", "xanchor": "right"}
            corner |= {"ay": top + step * (named - index - 0.5), "arrowcolor": CLEAR}
            over = {"ax": 0, "ay": -18 - 20 * index, "xanchor": "center", "arrowcolor": LINE}
            figure.add_annotation(
                x=value,
                y=float(np.log10(bars.y[bar])),
                text=f"{_short(word)} {_signed(float(value))}",
                font_size=12,
                arrowwidth=1,
                arrowhead=0,
                **(corner if side == "top" else over),
            )
    return figure


def along_text(trace: Result, parts: bool = True) -> go.Figure:
    """Draw a neuron's pre-activation along a text: true, predicted, and the prediction's parts."""
    words = [_short(word) for word in trace.words("tokens")]
    figure = go.Figure(layout_legend_traceorder="reversed")
    figure.add_hline(y=0, line={"color": MUTED, "width": 1.2})
    hover = [
        [word, "" if np.isnan(add) else f"<br>a token that adds {_signed(float(add))}"]
        for word, add in zip(words, trace.values["contribution"], strict=True)
    ]
    for name, (label, one) in ((PREDICTION_PARTS if parts else {}) | TRACE_CURVES).items():
        figure.add_scatter(
            x=np.arange(len(words)),
            y=trace.values[name],
            mode="lines",
            name=label,
            line={"color": one.colour, "dash": one.dash},
            line_width=1.8 if name in TRACE_CURVES else 1,
            customdata=hover,
            hovertemplate=f"%{{customdata[0]}} at %{{x}}<br><b>{label}</b> %{{y:.3g}}"
            "%{customdata[1]}<extra></extra>",
        )
    style(figure, x_title="position (tokens)", y_title="pre-activation", height=420)
    return set_title(legend_under_title(figure), _trace_title(trace))


def _trace_title(trace: Result) -> str:
    params, values = trace.params, trace.values
    measures = {"r2": "R²", "correlation": "correlation"}.items()
    reported = [
        f"{label} {_signed(float(values[name]))}" for name, label in measures if name in values
    ]
    text = "the text" if params["text"] else params["item"] or f"window {params['window']}"
    return (
        f"Neuron {params['neuron']} along {html.escape(text, quote=False)}: {', '.join(reported)}"
    )


def relatives(neuron: Result) -> go.Figure:
    """Draw similarities to a neuron: correlation of contributions, cosine of outputs."""
    related, cosine = neuron.values["related"], neuron.values["output_cosine"]
    number = int(neuron.params["neuron"])
    figure = go.Figure().add_scatter(
        x=related,
        y=cosine,
        mode="markers",
        name="neurons",
        customdata=np.arange(len(related))[:, None],
        marker={"color": BLUE, "opacity": 0.7, "size": 6},
        hovertemplate="<b>neuron %{customdata[0]}</b><br>correlation %{x:.3f}"
        "<br>cosine of outputs %{y:.3f}<extra></extra>",
    )
    size = np.nan_to_num(np.abs(related), nan=-1)
    size[number] = -1
    first = np.argsort(-size, kind="stable")[:BEST]
    _add_named(figure, related, cosine, first[size[first] >= 0].tolist())
    chosen: dict[str, Any] = {"customdata": [[number]], "cliponaxis": False}
    add_ring(figure, related[[number]], cosine[[number]], f"{number}", "left", **chosen)
    for add in (figure.add_hline, figure.add_vline):
        add(0, line={"color": LINE, "width": 1}, layer="below")
    x_title = f"correlation of contributions with neuron {number}'s"
    style(figure, x_title=x_title, y_title="cosine of output weights", height=440)
    return figure.update_layout(showlegend=False)


def _add_named(figure: go.Figure, x: np.ndarray, y: np.ndarray, places: list[int]) -> None:
    """Mark some neurons by colour and shape, with their numbers in a column at either end.

    Marks at one end are close together, in the cloud of all other neurons. So their numbers stand
    in a separate column, in the order of the marks.
    """
    for end in (-1, 1):
        some = sorted((place for place in places if end * x[place] > 0), key=lambda place: y[place])
        first = max([0.35, *(y[place] + 0.15 for place in some)])
        first = min(first, 0.92 - LABEL * len(some))
        for row, place in enumerate(some):
            figure.add_annotation(
                x=x[place],
                y=y[place],
                text=f"{place}",
                ax=end * 0.82,
                axref="x",
                ay=first + LABEL * row,
                ayref="y",
                font_size=12,
                arrowwidth=1,
                arrowhead=0,
                arrowcolor=LINE,
            )
    figure.add_scatter(
        x=x[places],
        y=y[places],
        mode="markers",
        name="largest",
        customdata=[[int(place)] for place in places],
        cliponaxis=False,
        hoverinfo="skip",
        marker={"color": VERMILLION, "symbol": "diamond", "size": 9},
    )
