"""Induction, recency and its causes as figures."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.induction.role_maps import CANDIDATES, letter
from poskernel_core.analyses.pictures import draw_lines, heads, unit_of
from poskernel_core.common.result import Result
from poskernel_core.plotting.conditions import mean_bars
from poskernel_core.plotting.curves import Look, look
from poskernel_core.plotting.head_map import share_bar
from poskernel_core.plotting.layout import MUTED, style
from poskernel_core.plotting.palette import SCALE

FEW = 32  # up to this many keys, cells have gaps and candidates are labelled
TOKENS: Final = {
    "induction": "the token after the duplicate",
    "duplicate": "the earlier duplicate",
    "previous_mass": "the previous token",
}
"""Where attention goes in a sequence repeated."""
CHANGES: Final = {
    "attention_change": "to all candidates",
    "attention_advantage_change": "last minus first",
    "attention_rise_change": "last row minus first",
}
"""What equalised norms change of a head's attention."""


def over_candidates(recency: Result, name: str) -> go.Figure:
    """Draw a value [second pair] of each candidate over the last [A]'s position.

    The mean of other random tokens, if it is there, is grey and dotted.
    """
    pairs = zip(recency.values[name].T, recency.errors[name].T, strict=True)
    rows = dict(zip(CANDIDATES, pairs, strict=False))
    looks = [look(place) for place in range(len(rows))]
    if (other := f"{name}_other") in recency.values:
        pair = recency.values[other], recency.errors[other]
        rows["other random tokens (mean)"] = pair
        looks.append(Look(MUTED, "dot", "circle-open"))
    seconds, unit = recency.coordinates["second"], unit_of(recency, name)
    return draw_lines(seconds, rows, over="second", unit=unit, looks=looks, band=False)


def last_rows(recency: Result) -> go.Figure:
    """Draw a head's attention from the last [A] to each key, a row per place of the last pair.

    Candidates are marked with their letter.
    """
    rows, seconds = recency.values["last_row"], recency.coordinates["second"]
    letters = [
        ["" if role == "[A]" else letter(role) for role in row] for row in recency.text_of("role")
    ]
    apart = {"text": letters, "texttemplate": "%{text}", "xgap": 1, "ygap": 1}
    top = float(rows.max())
    figure = go.Figure().add_heatmap(
        z=rows.astype(np.float32),
        y=seconds,
        zmin=0,
        zmax=top,
        colorscale=SCALE,
        textfont_size=12,
        customdata=recency.errors["last_row"].astype(np.float32),
        hovertemplate="last pair at %{y}, key %{x}"
        "<br><b>%{z:.3g}</b> ± %{customdata:.2g}<extra></extra>",
        **(apart if rows.shape[1] <= FEW else {}),
    )
    y_title = "position of the last pair's [A]"
    style(figure, x_title="key position i (tokens)", y_title=y_title, height=420)
    figure.update_xaxes(showgrid=False, dtick=1 if rows.shape[1] <= 13 else None)
    figure.update_yaxes(
        showgrid=False, autorange="reversed", dtick=1 if len(seconds) < 13 else None
    )
    return share_bar(figure, top)


def induction_map(scores: Result) -> go.Figure:
    """Draw the induction score of every head [layer, head]; hover has its other scores."""
    others = [name for name in ("duplicate", "previous_mass") if name in scores.values]
    hover = "".join(
        f"<br>to {TOKENS[name]} %{{customdata[{place}]:.3f}}"
        for place, name in enumerate(others, 1)
    )
    return heads(
        scores, "induction", hover_text=hover, extra=[scores.values[name] for name in others]
    )


def named_bars(result: Result, names: Mapping[str, str], x_title: str) -> go.Figure:
    """Draw several numbers with their errors as bars, under the names that readers see."""
    both = (np.array([part[name] for name in names]) for part in (result.values, result.errors))
    return mean_bars([*names.values()], *both, title="", x_title=x_title)
