"""Figures of what heads write: tokens by key, contributions to a logit, copying scores."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import has, who
from poskernel_core.analyses.own_text.figures import key_ticks, token_names, token_text
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import as_printed
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.head_map import head_map, share_map
from poskernel_core.plotting.layout import (
    MUTED,
    legend_under_title,
    quoted,
    set_title,
    style,
)
from poskernel_core.plotting.palette import BLUE, CATEGORICAL, DIVERGING, VERMILLION, hatched

BY_KEY = 3
"""Tokens raised most, and lowered most, whose contributions are drawn by key."""
SCORES = {
    "copying_share": "share, from the embedding",
    "copying_share_mlp": "share, from the first MLP",
    "copying_eigenvalues": "eigenvalues",
}


def signed_bars(names: list[str], numbers: np.ndarray, *, title: str, x_title: str) -> go.Figure:
    """Draw a bar for each name, blue above 0 and orange below."""
    figure = go.Figure()
    figure.add_bar(
        x=numbers,
        y=np.arange(len(names)),
        orientation="h",
        customdata=names,
        marker_color=[BLUE if number >= 0 else VERMILLION for number in numbers],
        text=[as_printed(f"{number:+.2f}") for number in numbers],
        textposition="outside",
        cliponaxis=False,
        hovertemplate="<b>%{customdata}</b><br>%{x:+.3g}<extra></extra>",
    )
    style(figure, x_title=x_title, y_title="", height=150 + 24 * len(names))
    low, high = min(0.0, float(np.nanmin(numbers))), max(0.0, float(np.nanmax(numbers)))
    room = 0.2 * (high - low)  # for the numbers beside the bars
    figure.update_xaxes(range=[low - room * (low < 0), high + room], zerolinecolor=MUTED)
    figure.update_yaxes(
        tickvals=np.arange(len(names)), ticktext=names, autorange="reversed", showgrid=False
    )
    return set_title(figure, title)


def writes_figure(result: Result) -> go.Figure:
    """Draw the tokens that a head raises and lowers most."""
    if not has(result, ("word",), "contribution", "chosen_query"):
        return by_axes(result)
    names = [quoted(token_text(word)) for word in result.words("words")]
    at = int(result.values["chosen_query"])
    return signed_bars(
        names,
        result.values["contribution"],
        title=f"{who(result)} at token {at}: what it writes",
        x_title="added to the logit, less the mean of all (logits)",
    )


def by_key_figure(result: Result) -> go.Figure:
    """Draw the tokens raised and lowered most by the keys that the head looked at, stacked."""
    words, rows = result.words("words"), result.values["by_key"]
    keys = np.arange(rows.shape[1])
    names = token_names(result, len(keys))
    figure = go.Figure()
    chosen = [*range(BY_KEY), *range(len(words) - BY_KEY, len(words))]
    for place, (at, colour) in enumerate(zip(chosen, CATEGORICAL, strict=False)):
        figure.add_bar(
            x=keys,
            y=rows[at],
            name=quoted(token_text(words[at])),
            customdata=names,
            marker=hatched(colour, "/" if place >= BY_KEY else "", size=6),
            hovertemplate="%{customdata}<br>%{fullData.name} %{y:+.3g}<extra></extra>",
        )
    style(
        figure, x_title="key: position and token", y_title="added to the logit (logits)", height=440
    )
    key_ticks(figure, keys, names)
    figure.update_layout(barmode="relative", bargap=0.2)
    title = f"{who(result)} at token {int(result.values['chosen_query'])}: by key"
    return legend_under_title(set_title(figure, title))


def contributions_figure(result: Result) -> go.Figure:
    """Draw what every head adds to the logit, as a map."""
    if not has(result, ("layer", "head"), "head_contribution", "logit"):
        return by_axes(result)
    heads = result.values["head_contribution"]
    reach = float(np.nanmax(np.abs(heads), initial=1e-6))
    figure = head_map(
        heads,
        told="<br>%{z:+.3g} logits",
        height=min(190 + 34 * len(heads), 900),
        colorscale=DIVERGING,
        zmin=-reach,
        zmax=reach,
        colorbar={"title": {"text": "logits"}},
    )
    token = quoted(token_text(str(result.texts["token"])))
    return set_title(figure, f"What every head adds to the logit of {token}")


def parts_figure(result: Result) -> go.Figure:
    """Draw what all heads of each layer, every MLP, and the rest add to the logit."""
    values = result.values
    rows = {
        f"heads of layer {layer}": float(np.nansum(row))
        for layer, row in enumerate(values["head_contribution"])
        if not np.isnan(row).all()
    }
    rows |= {
        f"MLP {layer}": float(number)
        for layer, number in enumerate(values["mlp_contribution"])
        if not np.isnan(number)
    }
    rows |= dict(zip(result.words("rest"), values["rest_contribution"].tolist(), strict=True))
    token = quoted(token_text(str(result.texts["token"])))
    return signed_bars(
        [*rows],
        np.array([*rows.values()]),
        title=f"All that makes the logit of {token}: {float(values['logit']):.2f}",
        x_title="added to the logit (logits)",
    )


def copying_figure(result: Result) -> go.Figure:
    """Draw the copying score of all heads as a map, or all scores of one head as bars."""
    if has(result, ("layer", "head"), "copying_share"):
        shares = result.values["copying_share"]
        title = "Frequent tokens that each head copies"
        return share_map(shares, told="%{z:.3f} of the tokens", title=title)
    if not has(result, (), *SCORES):
        return by_axes(result)
    known = {
        label: float(result.values[name])
        for name, label in SCORES.items()
        if not np.isnan(result.values[name])
    }
    if not known:
        return by_axes(result)
    title, scores = f"{who(result)}: copying scores", np.array([*known.values()])
    return signed_bars([*known], scores, title=title, x_title="score, 1: it copies")
