"""Figures of what heads write: tokens and keys, contributions to a logit, copying scores."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import has, who
from poskernel_core.analyses.own_text.figures import token_names, token_text
from poskernel_core.analyses.score_components.figures import signed_bars, with_room
from poskernel_core.common.result import Result
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.head_map import head_map, share_map
from poskernel_core.plotting.layout import quoted, set_title, style
from poskernel_core.plotting.palette import DIVERGING

MOST = 12
"""Keys with a bar of their own."""
SCORES = {
    "copying_share_first_layer": "from the first layer",
    "copying_share": "from the embedding",
    "copying_eigenvalues": "eigenvalues",
}


def bars(names: list[str], numbers: np.ndarray, x_title: str, title: str) -> go.Figure:
    """Draw a bar for each name, blue above 0 and orange below."""
    figure = go.Figure(signed_bars(names, numbers.tolist(), ""))
    style(figure, x_title=x_title, y_title="", height=150 + 24 * len(names))
    with_room(figure, numbers.tolist())
    return set_title(figure, title)


def word_names(result: Result) -> list[str]:
    """Return the tokens raised and lowered; with their ids where several look the same."""
    words = [token_text(word) for word in result.words("words")]
    ids = result.coordinates.get("word", np.arange(len(words)))
    return [
        f"{word} ({at})" if words.count(word) > 1 else word
        for word, at in zip(words, ids, strict=True)
    ]


def writes_figure(result: Result) -> go.Figure:
    """Draw the tokens that a head raises and lowers most."""
    if not has(result, ("word",), "contribution", "chosen_query"):
        return by_axes(result)
    names = [quoted(word) for word in word_names(result)]
    at = int(result.values["chosen_query"])
    what, numbers = f"{who(result)} at token {at}: what it writes", result.values["contribution"]
    return bars(names, numbers, "added to the logit, less the mean of all", what)


def by_key_figure(result: Result, place: int) -> go.Figure:
    """Draw what the keys that a head looked at add to one of the tokens, the largest parts."""
    numbers = result.values["by_key"][place]
    keys = np.sort(np.argsort(-np.abs(numbers), kind="stable")[:MOST])
    names = [name for at, name in enumerate(token_names(result, len(numbers))) if at in keys]
    what = f"{who(result)}: the keys that {quoted(word_names(result)[place])} comes from"
    return bars(names, numbers[keys], "added to the logit, less the mean of all", what)


def contributions_figure(result: Result) -> go.Figure:
    """Draw what every head adds to the logit, as a map."""
    if not has(result, ("layer", "head"), "head_contribution", "logit"):
        return by_axes(result)
    heads = result.values["head_contribution"]
    reach = float(np.nanmax(np.abs(heads), initial=1e-6))
    cells = {"colorscale": DIVERGING, "zmin": -reach, "zmax": reach}
    height = min(190 + 34 * len(heads), 900)
    figure = head_map(heads, told="<br>%{z:+.3g} logits", height=height, **cells)
    token = quoted(token_text(str(result.texts["token"])))
    return set_title(figure, f"What every head adds to the logit of {token}")


def copying_figure(result: Result) -> go.Figure:
    """Draw the copying score of all heads as a map, or all scores of one head as bars."""
    if has(result, ("layer", "head"), "copying_share_first_layer"):
        shares, title = (
            result.values["copying_share_first_layer"],
            "Frequent tokens that each head copies",
        )
        return share_map(shares, told="%{z:.3f} of the tokens", title=title)
    if not has(result, (), *SCORES):
        return by_axes(result)
    known = [name for name in SCORES if np.isfinite(result.values[name])]
    numbers = np.array([float(result.values[name]) for name in known])
    what = f"{who(result)}: copying scores"
    return bars([SCORES[name] for name in known], numbers, "1: it copies every token", what)
