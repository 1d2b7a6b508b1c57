"""What heads carry between two prompts, as figures."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import ALL_HEADS, has
from poskernel_core.analyses.patching.spec import SHARE
from poskernel_core.common.result import Result
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.curves import Look, curves
from poskernel_core.plotting.head_map import head_map
from poskernel_core.plotting.layout import quoted, set_title, style
from poskernel_core.plotting.palette import BLUE, DIVERGING, VERMILLION, fade

TICKED = 48
"""Up to this many tokens are named below a figure."""


def so_far(result: Result) -> np.ndarray:
    """Return effects, or attributions of heads whose effects are not known yet."""
    effect = result.values["effect"]
    return np.where(np.isnan(effect), result.values["attribution"], effect)


def effects_figure(result: Result) -> go.Figure:
    """Draw the effects of all heads as a map, before they are known their first-order estimates."""
    if not has(result, ALL_HEADS, "effect", "attribution"):
        return by_axes(result)
    values, exact = so_far(result), ~np.isnan(result.values["effect"])
    reach = max(0.05, float(np.nanmax(np.abs(values), initial=0)))
    figure = head_map(
        values,
        told=": %{z:.3f} (%{customdata})",
        customdata=np.where(exact, "exact", "first order"),
        zmin=-reach,
        zmax=reach,
        colorscale=DIVERGING,
        colorbar={"title": SHARE},
    )
    return set_title(figure, f"Heads between two prompts: {result.params['what']}")


def positions_figure(result: Result) -> go.Figure:
    """Draw what a head, or layer, carries at each position."""
    if not has(result, ("pos",), "effect", "attribution"):
        return by_axes(result)
    rows = {
        "exact": (result.values["effect"], None),
        "first order": (result.values["attribution"], None),
    }
    positions = np.arange(len(result.values["effect"]))
    figure = curves(
        positions,
        rows,
        x_title="position" if result.params["what"] == "values" else "query position",
        y_title=SHARE,
        where="position %{x}",
        looks=(Look(BLUE), Look(VERMILLION, "dot", "square")),
    )
    if (words := aligned(result)) and len(words) <= TICKED:
        figure.update_xaxes(tickvals=positions, ticktext=words, tickangle=-60)
    return set_title(figure, f"{result.params['head']}: {result.params['what']}, by position")


def parts_figure(result: Result) -> go.Figure:
    """Draw what output, pattern and values carry at all positions, as bars."""
    if not has(result, ("part",), "part_effect"):
        return by_axes(result)
    words, effect = result.words("part"), result.values["part_effect"]
    figure = go.Figure()
    figure.add_bar(
        x=effect, y=words, orientation="h", marker_color=fade(BLUE, 0.6),
        hovertemplate="<b>%{y}</b>: %{x:.3f}<extra></extra>",
    )  # fmt: skip
    style(figure, x_title=SHARE, y_title="", height=250)
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return set_title(figure, f"{result.params['head']}: what carries the effect")


def aligned(result: Result) -> list[str]:
    """Return the tokens of both prompts by position, both where they differ."""
    pairs = zip(result.words("tokens"), result.words("changed_tokens"), strict=False)
    return [quoted(a) if a == b else f"{quoted(a)} | {quoted(b)}" for a, b in pairs]
