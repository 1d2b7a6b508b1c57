"""Figures of one query's scores by component: the chosen key's, and those of all keys."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from poskernel_core.analyses.own_text.figures import BARS, key_ticks, token_names
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import as_printed
from poskernel_core.plotting.layout import MUTED, legend_under_title, set_title, style
from poskernel_core.plotting.palette import BLUE, CATEGORICAL, VERMILLION, hatched

MOST, STACKED = 8, 5
LOOKS = [*zip(CATEGORICAL, ("", "/", "", "x", "", "", "."), strict=False)]
"""Bars of each panel, and components that all keys are stacked of; the rest is one more."""
DIAMOND = {"color": "#ffffff", "symbol": "diamond", "line": {"color": "#222222", "width": 1.5}}

AGAINST = {
    "less the row's mean": "mean_component_score",
    "as it is": "",
    "against another key": "other_component_score",
}
"""What a table is compared with: the value that is subtracted."""
MEAN = next(iter(AGAINST))

ALIBI, REST = "ALiBi's bias", "the rest"


def parts(result: Result, against: str) -> tuple[np.ndarray, float]:
    """Return the table of the chosen key less what it is compared with, and ALiBi's bias alike."""
    table, other = result.values["component_score"], AGAINST[against]
    bias = less(result, result.values.get("alibi_bias", 0 * result.values["score"]), against)
    key = int(result.values["chosen_key"])
    return table - result.values[other] if other else table, float(bias[key])


def less(result: Result, numbers: np.ndarray, against: str) -> np.ndarray:
    """Return numbers ``[..., key]`` less the row's mean, or less those of the other key."""
    if AGAINST[against] == "other_component_score":
        return numbers - numbers[..., [result.params["other"]]]
    if not AGAINST[against]:
        return numbers
    counted = result.values["counted"] > 0
    return numbers - numbers[..., counted].mean(axis=-1, keepdims=True)


def largest(names: list[str], numbers: np.ndarray, most: int = MOST) -> list[tuple[str, float]]:
    """Return the numbers of largest size with their names, in descending order, then the rest."""
    order = np.argsort(-np.abs(numbers), kind="stable")
    pairs = [(names[at], float(numbers[at])) for at in order[:most]]
    left = order[most:]
    return [*pairs, (f"{REST} ({len(left):,})", float(numbers[left].sum()))] if len(left) else pairs


def score_figure(result: Result, against: str = MEAN) -> go.Figure:
    """Draw one score in three panels: by the query's components, by the key's, and by pairs."""
    table, bias = parts(result, against)
    names = result.texts["query_names"].tolist()
    pairs = [f"{query} · {key}" for query in names for key in names]
    tokens = token_names(result, len(result.values["score"]))
    query, key = (
        tokens[int(result.values["chosen_query"])],
        tokens[int(result.values["chosen_key"])],
    )
    panels = {
        f"the query, {query}": (names, table.sum(axis=1)),
        f"the key, {key}": (names, table.sum(axis=0)),
        "pairs: query · key": (pairs, table.ravel()),
    }
    figure = make_subplots(
        rows=3, cols=1, shared_xaxes=True, vertical_spacing=0.09, subplot_titles=[*panels]
    )
    style(figure, x_title="", y_title="", height=800)
    ends = [0.0]
    for row, (labels, numbers) in enumerate(panels.values(), 1):
        entries = largest(labels, numbers) + ([(ALIBI, bias)] if bias else [])
        sizes = [number for _, number in entries]
        ends += sizes
        figure.add_trace(signed_bars([name for name, _ in entries], sizes, "nats"), row=row, col=1)
    with_room(figure, ends)
    figure.update_xaxes(title_text=f"score, {against} (nats)", row=3, col=1)
    figure.update_annotations(x=0, xanchor="left", font_size=13)
    figure.update_layout(showlegend=False, bargap=0.25)
    total = as_printed(f"{table.sum() + bias:+.2f}")
    return set_title(figure, f"{result.params['head']}: {total} nats, {against}")


def signed_bars(names: Sequence[str], numbers: Sequence[float], unit: str) -> go.Bar:
    """Return a bar for each name, with its number beside it; blue above 0, orange below."""
    return go.Bar(
        y=names,
        x=numbers,
        orientation="h",
        marker_color=[BLUE if number >= 0 else VERMILLION for number in numbers],
        text=[as_printed(f"{number:+.2f}") for number in numbers],
        textposition="outside",
        cliponaxis=False,
        hovertemplate=f"<b>%{{y}}</b><br>%{{text}} {unit}<extra></extra>",
    )


def with_room(figure: go.Figure, ends: Sequence[float]) -> None:
    """Give signed bars, which reach to some ends, room for the numbers beside them."""
    figure.update_yaxes(autorange="reversed", showgrid=False, type="category")
    low, high = min(0.0, *ends), max(0.0, *ends)
    room = 0.25 * (high - low)
    span = [low - room * (low < 0), high + room]
    figure.update_xaxes(zeroline=True, zerolinecolor=MUTED, range=span)


def keys_figure(result: Result, against: str = MEAN) -> go.Figure:
    """Draw the scores of all keys, stacked by the key's largest components and the rest."""
    values, names = result.values, result.texts["key_names"].tolist()
    keys = np.flatnonzero(np.isfinite(values["score"]))
    margins = less(result, values["key_margin"], against)
    size = np.abs(less(result, values["key_margin"], MEAN))[:, keys].sum(axis=1)
    order = np.argsort(-size, kind="stable")
    stacks = {names[at]: margins[at] for at in sorted(order[:STACKED])}
    if len(order) > STACKED:
        stacks[f"{REST} ({len(order) - STACKED})"] = margins[order[STACKED:]].sum(axis=0)
    if "alibi_bias" in values:
        stacks[ALIBI] = less(result, values["alibi_bias"], against)
    where = token_names(result, len(values["score"]))
    labels, few = [where[key] for key in keys], len(keys) <= BARS
    figure = go.Figure()
    for (name, heights), (colour, shape) in zip(stacks.items(), LOOKS, strict=False):
        figure.add_bar(
            x=keys, y=heights[keys], name=name, customdata=labels,
            marker=hatched(MUTED if REST in name else colour, shape, size=6),
            hovertemplate=f"%{{customdata}}<br>{name} %{{y:+.2f}} nats<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=keys, y=less(result, values["score"], against)[keys], name="score", customdata=labels,
        mode="markers", marker=DIAMOND | {"size": 8 if few else 3},
        hovertemplate="%{customdata}<br>score %{y:+.2f} nats<extra></extra>",
    )  # fmt: skip
    style(figure, x_title="key: position and token", y_title=f"score, {against} (nats)", height=480)
    key_ticks(figure, keys, where)
    figure.update_layout(barmode="relative", bargap=0.2)
    what = f"{result.params['head']}: scores of all keys, by what each key is made of"
    return legend_under_title(set_title(figure, what))
