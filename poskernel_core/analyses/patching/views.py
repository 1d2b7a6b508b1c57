"""What is drawn and said of what heads carry between two prompts, or over a set of them."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.claims import (
    HALF,
    alike,
    name_at,
    number_of,
    of_all,
    param,
    who,
)
from poskernel_core.analyses.discoveries import Condition, discovered
from poskernel_core.analyses.patching.spec import CLEAR, COUNTS, INTO_CHANGED, SHARE
from poskernel_core.analyses.views import PICK, View, Views
from poskernel_core.common.jackknife import Estimate
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import brief, counted
from poskernel_core.plotting.conditions import mean_bars
from poskernel_core.plotting.curves import Look, curves
from poskernel_core.plotting.head_map import effect_map
from poskernel_core.plotting.layout import MUTED, quoted, style
from poskernel_core.plotting.palette import BLUE, VERMILLION, fade

OF = {"output": "", "pattern": " pattern", "values": " values"}
"""What is put into the other run, after a head's name."""
TICKED = 48
"""Up to this many tokens are named below a figure."""
ONE_PAIR = " (one pair: no error)"


def no_behaviour(result: Result) -> str:
    """Say why the prompts show no behaviour of which heads could carry a share; empty if they do.

    The clean prompt should prefer its answer, and the changed one clearly less.
    """
    if {"clean_metric", "changed_metric"} - result.values.keys():
        return ""
    clean, changed = (number_of(result, f"{name}_metric") for name in ("clean", "changed"))
    if param(result, "metric") == "difference" and clean.sign() < 0:
        return (
            f"The clean prompt prefers the other answer (by {brief(-clean.value)} nats), so no "
            "head can carry what these prompts were to show."
        )
    if "difference" in result.values:
        known = number_of(result, "difference")
        if known.low <= CLEAR:
            return (
                f"The prompts differ by {known} nats in the mean, which is not clearly more than "
                f"{CLEAR:g}: shares of so little say nothing about heads, and more pairs may."
            )
        return ""
    if (known := clean - changed).sign(CLEAR) < 0 and known.sign(-CLEAR) > 0:
        return (
            f"The prompts differ by {brief(abs(known.value))} nats only (limit {CLEAR:g}): "
            "shares of so little say nothing about heads."
        )
    return ""


def _most(result: Result) -> str:
    """Say which head carries most; empty while effects form, or where errors leave it open."""
    if why := no_behaviour(result):
        return why
    effect, sets = result.values["effect"], "effect" in result.errors
    forms = not np.array_equal(np.isnan(effect), np.isnan(result.values["attribution"]))
    if (forms and not sets) or not np.nanmax(effect, initial=0) >= COUNTS:
        return ""
    top = tuple(map(int, np.unravel_index(np.nanargmax(effect), effect.shape)))
    number = number_of(result, "effect", *top)
    if number.sign() < 1:
        return ""
    name, what = name_at(result, "effect", top), param(result, "what")
    owner = f"{name}'s{OF[what]}" if OF[what] else name
    does = "restore" if param(result, "direction") == INTO_CHANGED else "undo"
    verb = f"{owner} {does}{'' if what == 'values' else 's'}"
    if not sets:
        return (
            f"{verb} {brief(effect[top])} of the difference between these two prompts, most of all "
            f"heads{ONE_PAIR}."
        )
    known = np.isfinite(effect)
    every = Estimate(*(part[known] for part in result.estimate_of("effect")))
    heads = discovered(result, Condition(every, 0.0, "apart"))
    more = alike(every, (int(np.nanargmax(every.value)),))
    tie = f" ({counted(more, 'other')} may carry as much)" if more else ""
    among = of_all(heads.count, every.value.size, "exact effect", heads.beside)
    return (
        f"{verb} {number} of the difference in this set of pairs, most of all heads{tie}; {among} "
        f"{'is' if heads.count == 1 else 'are'} not 0."
    )


def _parts(result: Result) -> str:
    if why := no_behaviour(result):
        return why
    output, pattern, values = (number_of(result, "part_effect", part) for part in range(3))
    if not (sign := output.sign(COUNTS) > 0 or -(output.sign(-COUNTS) < 0)):
        return ""
    why = ""
    for part, other, what in (
        (pattern, values, "where it looks"),
        (values, pattern, "what it finds"),
    ):
        least = min(sign * part.low, sign * part.high)
        most = max(sign * output.low, sign * output.high)
        if least >= HALF * most and max(abs(other.low), abs(other.high)) <= least / 2:
            why = f": {what} decides"
    pairs = (
        "in this set of pairs" if "part_effect" in result.errors else "between these two prompts"
    )
    return (
        f"{who(result)} carries {brief(output.value)} of the difference {pairs}, its pattern alone "
        f"{brief(pattern.value)}, its values alone {brief(values.value)}{why}"
        f"{'' if 'part_effect' in result.errors else ONE_PAIR}."
    )


def so_far(result: Result) -> np.ndarray:
    """Return effects, or attributions of heads whose effects are not known yet, or not asked."""
    effect = result.values["effect"]
    return np.where(np.isnan(effect), result.values["attribution"], effect)


def sizes_so_far(result: Result) -> Estimate:
    """Return how large these are, whatever their sign, with their intervals."""
    exact = ~np.isnan(result.values["effect"])
    both = (result.estimate_of(name) for name in ("effect", "attribution"))
    value, low, high = (np.where(exact, one, other) for one, other in zip(*both, strict=True))
    negative = value < 0
    return Estimate(abs(value), np.where(negative, -high, low), np.where(negative, -low, high))


def told(result: Result) -> np.ndarray:
    """Return what is told of each head beside its number: how it was computed, and its error."""
    exact = ~np.isnan(result.values["effect"])
    words = np.where(exact, "exact", "first order").astype(object)
    if "effect" in result.errors:
        both = [result.errors[name] for name in ("effect", "attribution")]
        for at in np.ndindex(exact.shape):
            words[at] = f"± {brief(float(both[0 if exact[at] else 1][at]))} s.e., {words[at]}"
            if exact[at] and "opposite" in result.values and result.values["opposite"][at] > 0:
                words[at] += f"; the opposite in {result.values['opposite'][at]:.0%} of pairs"
    return words


def _map(result: Result) -> go.Figure:
    hover, more = ": %{z:.3f} (%{customdata})", told(result)
    return effect_map(so_far(result), least=0.05, unit=SHARE, hover_text=hover, customdata=more)


def _by_position(result: Result) -> go.Figure:
    rows = {
        "exact": (result.values["effect"], None),
        "first order": (result.values["attribution"], None),
    }
    positions = np.arange(len(result.values["effect"]))
    figure = _two_curves(rows, positions, result, "position")
    pairs = zip(result.words("tokens"), result.words("changed_tokens"), strict=False)
    words = [quoted(a) if a == b else f"{quoted(a)} | {quoted(b)}" for a, b in pairs]
    return _ticked(figure, words)


def _by_span(result: Result) -> go.Figure:
    names = {"exact": "span_effect", "first order": "span_attribution"}
    rows = {word: (result.values[name], result.errors.get(name)) for word, name in names.items()}
    places = np.arange(len(result.values["span_effect"]))
    figure = _two_curves(rows, places, result, "position or span")
    return _ticked(figure, result.words("span"))


def _two_curves(rows: Any, places: np.ndarray, result: Result, where: str) -> go.Figure:
    of = "" if param(result, "what") == "values" else "query "
    looks = (Look(BLUE), Look(VERMILLION, "dot", "square"))
    return curves(
        places, rows, x_title=f"{of}{where}", y_title=SHARE, where=f"{where} %{{x}}", looks=looks
    )


def _ticked(figure: go.Figure, words: list[str]) -> go.Figure:
    if words and len(words) <= TICKED:
        figure.update_xaxes(tickvals=np.arange(len(words)), ticktext=words, tickangle=-60)
    return figure


def _bars(result: Result) -> go.Figure:
    effect, error = result.values["part_effect"], result.errors.get("part_effect")
    if error is not None:
        return mean_bars(result.words("part"), effect, error, title="", x_title=SHARE)
    figure = go.Figure()
    figure.add_bar(
        x=effect, y=result.words("part"), orientation="h",
        marker_color=fade(BLUE, 0.6), hovertemplate="<b>%{y}</b>: %{x:.3f}<extra></extra>",
    )  # fmt: skip
    style(figure, x_title=SHARE, y_title="", height=250)
    return figure.update_yaxes(autorange="reversed", showgrid=False)


def _by_pair(result: Result) -> go.Figure:
    """Draw how far each pair's metric moves against how far the prompts are apart."""
    moved, of = result.values["pair_effect"], result.values["pair_difference"]
    figure = go.Figure()
    figure.add_scatter(
        x=of, y=moved, mode="markers", marker={"color": BLUE, "size": 7},
        text=result.words("pair"), hovertemplate="%{text}<br>%{y:.3g} of %{x:.3g}<extra></extra>",
    )  # fmt: skip
    most = float(of.max(initial=0.0))
    line = {"color": MUTED, "width": 1, "dash": "dot"}
    figure.add_shape(type="line", x0=0, y0=0, x1=most, y1=most, line=line)
    return style(figure, x_title="difference of the pair (nats)", y_title="moved by (nats)")


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
            f"Over a set of pairs, the largest are exact. {PICK}",
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
        View(
            "span_effect span_attribution [span]",
            _by_span,
            "{head}: {what}, by position or span",
            reading="On the left all positions at once: the whole output, the pattern alone (where "
            "it looks), the values alone (what it finds). On the right one position, or one span "
            "of tokens, at a time, each as a share of sums over the pairs.",
            explains="part_effect",
        ),
        View(
            "pair_effect pair_difference [pair]",
            _by_pair,
            "{head}: each pair",
            reading="A point per pair: how far the head moves the metric, all positions at once. "
            "On the dotted line it carries the whole difference; below 0 it does the opposite.",
        ),
        View("part_effect [part]", _bars, "{head}: what carries the effect", says=_parts),
        View("clean_metric changed_metric []", says=no_behaviour),
    ),
}
