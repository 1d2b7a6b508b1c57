"""What is drawn and said of what heads carry between two prompts."""

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import HALF, name_at, param, who
from poskernel_core.analyses.patching.spec import INTO_CHANGED, SHARE
from poskernel_core.analyses.views import PICK, View, Views
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief
from poskernel_core.plotting.curves import Look, curves
from poskernel_core.plotting.head_map import head_map
from poskernel_core.plotting.layout import quoted, style
from poskernel_core.plotting.palette import BLUE, DIVERGING, VERMILLION, fade

COUNTS = 0.05
"""Smallest share of the difference between two prompts that counts."""
CLEAR = 0.5
"""Smallest difference of the prompts' metrics, in nats, of which shares are told."""
OF = {"output": "", "pattern": " pattern", "values": " values"}
"""What is put into the other run, after a head's name."""
TICKED = 48
"""Up to this many tokens are named below a figure."""


def no_behaviour(result: Result) -> str:
    """Say why the prompts show no behaviour of which heads could carry a share; empty if they do.

    The clean prompt should prefer its answer, and the changed one clearly less.
    """
    if {"clean_metric", "changed_metric"} - result.values.keys():
        return ""
    clean, changed = (float(result.values[f"{name}_metric"]) for name in ("clean", "changed"))
    if param(result, "metric") == "difference" and clean < 0:
        return (
            f"The clean prompt prefers the other answer (by {brief(-clean)} nats), so no head can "
            "carry what these prompts were to show."
        )
    if abs(clean - changed) < CLEAR:
        return (
            f"The prompts differ by {brief(abs(clean - changed))} nats only (limit {CLEAR:g}): "
            "shares of so little say nothing about heads."
        )
    return ""


def _most(result: Result) -> str:
    """Say which head carries most; empty while effects form."""
    if why := no_behaviour(result):
        return why
    effect = result.values["effect"]
    forms = not np.array_equal(np.isnan(effect), np.isnan(result.values["attribution"]))
    if forms or not np.nanmax(effect, initial=0) >= COUNTS:
        return ""
    top = tuple(map(int, np.unravel_index(np.nanargmax(effect), effect.shape)))
    name, what = name_at(result, "effect", top), param(result, "what")
    owner = f"{name}'s{OF[what]}" if OF[what] else name
    does = "restore" if param(result, "direction") == INTO_CHANGED else "undo"
    return (
        f"{owner} {does}{'' if what == 'values' else 's'} {brief(effect[top])} of the difference "
        "between these two prompts, most of all heads (one pair: no error)."
    )


def _parts(result: Result) -> str:
    if why := no_behaviour(result):
        return why
    output, pattern, values = map(float, result.values["part_effect"])
    if not abs(output) >= COUNTS:
        return ""
    why = ""
    for part, other, what in (
        (pattern, values, "where it looks"),
        (values, pattern, "what it finds"),
    ):
        if part / output >= HALF and abs(other) <= abs(part) / 2:
            why = f": {what} decides"
    return (
        f"{who(result)} carries {brief(output)} of the difference between these two prompts, its "
        f"pattern alone {brief(pattern)}, its values alone {brief(values)}"
        f"{why} (one pair: no error)."
    )


def so_far(result: Result) -> np.ndarray:
    """Return effects, or attributions of heads whose effects are not known yet."""
    effect = result.values["effect"]
    return np.where(np.isnan(effect), result.values["attribution"], effect)


def _map(result: Result) -> go.Figure:
    values, exact = so_far(result), ~np.isnan(result.values["effect"])
    reach = max(0.05, float(np.nanmax(np.abs(values), initial=0)))
    return head_map(
        values,
        told=": %{z:.3f} (%{customdata})",
        customdata=np.where(exact, "exact", "first order"),
        zmin=-reach,
        zmax=reach,
        colorscale=DIVERGING,
        colorbar={"title": SHARE},
    )


def _by_position(result: Result) -> go.Figure:
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
    pairs = zip(result.words("tokens"), result.words("changed_tokens"), strict=False)
    words = [quoted(a) if a == b else f"{quoted(a)} | {quoted(b)}" for a, b in pairs]
    if words and len(words) <= TICKED:
        figure.update_xaxes(tickvals=positions, ticktext=words, tickangle=-60)
    return figure


def _bars(result: Result) -> go.Figure:
    figure = go.Figure()
    figure.add_bar(
        x=result.values["part_effect"], y=result.words("part"), orientation="h",
        marker_color=fade(BLUE, 0.6), hovertemplate="<b>%{y}</b>: %{x:.3f}<extra></extra>",
    )  # fmt: skip
    style(figure, x_title=SHARE, y_title="", height=250)
    return figure.update_yaxes(autorange="reversed", showgrid=False)


VIEWS: Views = {
    "patch-heads": (
        View(
            "effect attribution [layer head]",
            _map,
            "heads between two prompts: {what}",
            says=_most,
            reading="One cell per head: how much of the difference between the prompts it carries, "
            "put alone into the other run (orange: towards the other prompt; blue: away from it). "
            "Cells marked ≈ are first-order estimates, which exact effects replace row by row. "
            f"{PICK}",
        ),
        View("clean_metric changed_metric []", says=no_behaviour),
    ),
    "patch-positions": (
        View(
            "effect attribution [pos]",
            _by_position,
            "{head}: {what}, by position",
            reading="On the left all positions at once: the whole output, the pattern alone (where "
            "it looks), the values alone (what it finds). On the right one position at a time; "
            "where the prompts differ, both tokens are named.",
            explains="part_effect",
        ),
        View("part_effect [part]", _bars, "{head}: what carries the effect", says=_parts),
        View("clean_metric changed_metric []", says=no_behaviour),
    ),
}
