"""Figures of one text: all heads' patterns, one head's pattern, one row split in two."""

import base64
import math
import unicodedata
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from poskernel_core.analyses.claims import who
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.plotting.layout import legend_under_title, quoted, set_title, style, visible
from poskernel_core.plotting.maps import picture_source
from poskernel_core.plotting.palette import BLUE, GREEN, VERMILLION
from poskernel_core.plotting.patterns import stage_map

BYTE, WORD = 255, 65535
GAP = 2  # cells between the patterns of two heads
BARS = 128  # with more keys, lines are drawn, because bars would be finer than pixels
TICKS = 30
PARTS = {"position": ("position a", BLUE), "content": ("content c", VERMILLION)}
ROW_HEIGHT = 600
PERCENTILE, MIN_TOP = 99, 0.02


def token_text(token: str) -> str:
    """Return a token as plain text, with outer spaces, breaks and invisible characters shown.

    Characters that change the writing direction, or have no shape, are shown by their number.
    """
    return "".join(
        f"\\u{ord(char):04x}" if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn")
        else char
        for char in visible(token)
    )  # fmt: skip


def packed_patterns(result: Result) -> dict[str, Any]:
    """Return all heads' patterns for the browser: a byte per cell, the square root of its share.

    `cells` holds layer after layer, head after head, row after row, in base64. Shares of `top` or
    more get the full colour, in all heads alike. `bare` lists the layers without heads.
    """
    pattern = result.values["pattern"]
    layers, heads, side, _ = pattern.shape
    bare = np.isnan(pattern).all(axis=(1, 2, 3))
    top = scale_top(pattern[~bare][..., *np.tril_indices(side)])
    shade = np.sqrt(np.clip(np.nan_to_num(pattern) / top, 0, 1))
    return {
        "layers": layers,
        "heads": heads,
        "side": side,
        "top": top,
        "cells": base64.b64encode(np.round(shade * BYTE).astype(np.uint8).tobytes()).decode(),
        "bare": np.flatnonzero(bare).tolist(),
    }


def packed_head(result: Result) -> dict[str, Any]:
    """Return one head's pattern for the browser: two bytes per share, visible positions only.

    Rows follow one another from query `first` on, each from key 0 to the query itself. They are in
    base64, the lower byte first. Shares of `top` or more get the full shade.
    """
    pattern, queries = result.values["pattern"], result.coordinates["query"]
    rows = [row[: n + 1] for row, n in zip(pattern, queries.tolist(), strict=True)]
    visible_shares = np.concatenate(rows)
    shares = np.round(np.clip(visible_shares, 0, 1) * WORD).astype("<u2")
    return {
        "tokens": [token_text(token) for token in result.words("tokens")],
        "first": int(queries[0]),
        "rows": len(queries),
        "top": scale_top(visible_shares),
        "cells": base64.b64encode(shares.tobytes()).decode(),
    }


def scale_top(shares: np.ndarray) -> float:
    """Return a high percentile of the shares, rounded up, because a sink may be the maximum."""
    most = float(np.percentile(shares, PERCENTILE)) if shares.size else 1.0
    return min(1.0, max(MIN_TOP, math.ceil(100 * most) / 100))


def all_heads(result: Result) -> go.Figure:
    """Draw the patterns of all heads, a row per layer, on a square-root scale."""
    pattern = result.values["pattern"]
    layers, heads, side, _ = pattern.shape
    future = np.triu(np.ones((side, side), bool), 1)
    shade = np.where(
        future,
        np.nan,
        np.sqrt(np.clip(pattern / scale_top(pattern[np.isfinite(pattern) & ~future]), 0, 1)),
    )
    framed = np.pad(shade, ((0, 0), (0, 0), (0, GAP), (0, GAP)), constant_values=np.nan)
    tiles = framed.transpose(0, 2, 1, 3).reshape(layers * (side + GAP), heads * (side + GAP))
    figure = go.Figure(go.Image(source=picture_source(tiles), hoverinfo="skip"))
    style(figure, x_title="head", y_title="layer", height=max(300, min(1000, 110 * layers)))
    for axis, count, letter in (
        (figure.layout.xaxis, heads, "H"),
        (figure.layout.yaxis, layers, "L"),
    ):
        step = math.ceil(count / 16)
        axis.update(
            tickvals=[at * (side + GAP) + side / 2 for at in range(0, count, step)],
            ticktext=[f"{letter}{at}" for at in range(0, count, step)],
            showgrid=False,
        )
    figure.update_yaxes(constrain="domain")
    return set_title(
        figure,
        f"Attention of all heads of {result.model_title} on the text (square-root scale)",
    )


def between(result: Result, query: int, key: int) -> Result:
    """Return all heads' attention from one token to another, or between their blocks of tokens."""
    places = {"query": query, "key": key}
    starts = {axis: result.coordinates[axis] for axis in places}
    blocks = {axis: int(known[known <= places[axis]][-1]) for axis, known in starts.items()}
    return result.only("pattern").select(**blocks)


def one_head(result: Result) -> go.Figure:
    """Draw one head's attention on the text."""
    pattern, queries = result.values["pattern"], result.coordinates["query"]
    keys = np.arange(pattern.shape[1])
    return stage_map(
        np.where(keys > queries[:, None], np.nan, pattern),
        title=f"{who(result)} on the text",
        first_query=int(queries[0]),
        tokens=[token_text(token) for token in result.words("tokens")] or None,
        unit="share of attention",
    )


def one_row(result: Result) -> go.Figure:
    """Draw a query's scores, with their parts by position and content; below, kernel and attention.

    Scores are drawn minus their mean over the keys shown, because the softmax ignores that mean.
    Skipped keys are left out; kernel and attention are renormalised over the remaining keys.
    """
    n, kernel = result.chosen["query"], result.values["kernel"]
    keys = np.flatnonzero(np.isfinite(kernel))
    names = token_names(result, len(kernel))
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.1)
    style(figure, x_title="", y_title="", height=ROW_HEIGHT)
    where = [names[key] for key in keys]
    score = _centred(result.values["score"][keys])
    for name, (label, colour) in PARTS.items():
        part = _centred(result.values[name][keys])
        series = {"x": keys, "y": part, "name": label, "customdata": where}
        hover = f"%{{customdata}}<br>{label} %{{y:.3g}} nats<extra></extra>"
        if len(keys) <= BARS:
            figure.add_bar(**series, marker_color=colour, hovertemplate=hover, row=1, col=1)
        else:
            figure.add_scatter(
                **series, line={"color": colour, "width": 1}, hovertemplate=hover, row=1, col=1
            )
    figure.add_scatter(
        x=keys, y=score, name="score s = a + c", customdata=where, mode="markers",
        marker={"color": "#808080", "size": 7 if len(keys) <= BARS else 3, "symbol": "diamond"},
        hovertemplate="%{customdata}<br>score s %{y:.3g} nats<extra></extra>", row=1, col=1,
    )  # fmt: skip
    attention = result.values["pattern"][keys]
    mass = attention.sum()
    curves = {
        "kernel K, by position alone": (kernel[keys], BLUE, "solid", 3.5),
        "actual attention A": (attention / mass if mass > 0 else attention, GREEN, "dot", 2),
    }
    for label, (values, colour, dash, wide) in curves.items():
        figure.add_scatter(
            x=keys, y=values, name=label, customdata=where,
            mode="lines+markers" if len(keys) <= BARS else "lines",
            line={"color": colour, "dash": dash, "width": wide}, marker={"size": 5},
            hovertemplate=f"%{{customdata}}<br>{label} %{{y:.3g}}<extra></extra>", row=2, col=1,
        )  # fmt: skip
    key_ticks(figure, keys, names)
    figure.update_xaxes(title_text="key: position and token", row=2, col=1)
    figure.update_yaxes(title_text="score less its mean (nats)", row=1, col=1)
    figure.update_yaxes(title_text="share of attention", rangemode="tozero", row=2, col=1)
    figure.update_layout(barmode="relative", bargap=0.2)
    return legend_under_title(set_title(figure, f"{result.params['head']} at {names[n]}"))


def key_ticks(figure: go.Figure, keys: np.ndarray, names: list[str]) -> None:
    """Label some keys on the x axes, in place: by position and token, or if many by position."""
    ticks = keys[::-1][:: max(1, math.ceil(len(keys) / TICKS))][::-1]
    text = [names[key] if len(keys) <= BARS else f"{key}" for key in ticks]
    figure.update_xaxes(tickvals=ticks, ticktext=text, tickangle=-90, tickfont_size=10)


def _centred(numbers: np.ndarray) -> np.ndarray:
    return numbers - numbers.mean() if len(numbers) else numbers


def token_names(result: Result, count: int) -> list[str]:
    """Return the position and token of every key."""
    tokens = [token_text(token) for token in result.words("tokens")]
    return [f"{at} {quoted(tokens[at])}" if at < len(tokens) else f"{at}" for at in range(count)]


def head_labels(result: Result) -> list[list[str]]:
    """Return a label for every head: its name, and the shares of its scores on the text."""
    position, content = (result.values[f"{name}_share"] for name in ("position", "content"))
    return [
        [
            f"{head_name(i, j)}: no heads in this layer"
            if np.isnan(result.values["pattern"][i, j]).all()
            else f"{head_name(i, j)}: score variance explained by position "
            f"{_share(position[i, j])}, by content {_share(content[i, j])}"
            for j in range(position.shape[1])
        ]
        for i in range(position.shape[0])
    ]


def _share(number: float) -> str:
    return "not defined" if np.isnan(number) else f"{number:.2f}"
