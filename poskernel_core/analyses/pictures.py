"""Figures of a result's values: units, errors, names of places and axis titles come from it.

A picture is one call, or a few lines that go on with the figure that a call returns.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.base import Question
from poskernel_core.analyses.claims import capital
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import Result
from poskernel_core.plotting.curves import Look, add_by_offset, curves, look
from poskernel_core.plotting.head_map import head_map, share_map
from poskernel_core.plotting.layout import legend_under_title, set_title, style

AXES = {
    "key": ("key position i (tokens)", "key %{x}"),
    "query": ("query position n (tokens)", "n = %{x}"),
    "offset": ("offset k = n − i (tokens)", "offset %{x}"),
    "pos": ("position (tokens)", "position %{x}"),
    "heads": ("heads replaced, smallest cost first", "%{x} heads"),
    "first": ("first heads of the ranking (k)", "k = %{x}"),
    "step": ("training step", "step %{x:,}"),
    "shift": ("shift (tokens)", "shift %{x}"),
    "second": ("position of the last pair's [A] (tokens)", "last pair at %{x}"),
}
"""The title of each axis, and its place in hover texts."""
DENSE = 13
"""Up to so many places of an axis have a tick each."""
Rows = Mapping[str, tuple[np.ndarray, np.ndarray | None]]


def names_along(result: Result, axis: str) -> Sequence[str]:
    """Return the names of the places along an axis; of a chosen place, its name alone."""
    declared = Question.questions[result.analysis].texts
    names = (text.name for text in declared if text.axes == (axis,) and text.unit != "reason")
    name = next(names, "")
    return np.atleast_1d(result.texts[name]).tolist() if name in result.texts else ()


def titled(result: Result, title: str) -> str:
    """Return a title with what it names, parameters or chosen places, after the chosen head."""
    at: dict[str, Any] = dict(result.chosen)
    at |= {axis: names[0] for axis in at if (names := names_along(result, axis))}
    head = f"{head_name(at['layer'], at['head'])}: " if {"layer", "head"} <= at.keys() else ""
    text = title.format_map({**result.params, **at})
    return head + text if head else capital(text)


def unit_of(result: Result, name: str) -> str:
    """Return the unit of a value, with ± if it has errors: ``score ± 1 s.e. (nats)``."""
    unit, bracket, rest = result.units[name].partition(" (")
    return f"{unit}{' ± 1 s.e.' if name in result.errors else ''}{bracket}{rest}"


def rows_of(result: Result, name: str, by: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of each place along a value's first axis, and the value and its error."""
    names = names_along(result, by)
    errors = result.errors.get(name, [None] * len(result.values[name]))
    for place, pair in enumerate(zip(result.values[name], errors, strict=True)):
        yield names[place] if names else f"{by} {place}", *pair


def rows_named(result: Result, names: Mapping[str, str]) -> Rows:
    """Return several values, each with its errors, under the names that readers see."""
    return {text: (result.values[name], result.errors.get(name)) for name, text in names.items()}


def lines(
    result: Result, name: str, *, over: str, by: str, looks: Sequence[Look] = (), band: bool = True
) -> go.Figure:
    """Draw a value over an axis, a line per place along ``by``; no keys after a chosen query."""
    stop = result.chosen["query"] + 1 if over == "key" and "query" in result.chosen else None
    rows: Rows = {
        label: (value[:stop], None if error is None else error[:stop])
        for label, value, error in rows_of(result, name, by)
    }
    x = result.coordinates.get(over, np.arange(result.values[name].shape[-1]))[:stop]
    return draw_lines(x, rows, over=over, unit=unit_of(result, name), looks=looks, band=band)


def along(result: Result) -> go.Figure | None:
    """Draw a measure over the one axis that is left, under its title; None: it is none."""
    name, axes = next(iter(result.axes.items()))
    measures = Question.questions[result.analysis].measures
    title = next((each.title for each in measures if each.value == name), "")
    if not title or len(axes) != 1 or axes[0] not in AXES:
        return None
    (over,) = axes
    figure = named_lines(result, {name: title}, over=over, unit=unit_of(result, name))
    return set_title(figure, titled(result, title))


def named_lines(result: Result, names: Mapping[str, str], *, over: str, unit: str) -> go.Figure:
    """Draw several values over an axis, each under the name that readers see."""
    rows = rows_named(result, names)
    x = result.coordinates.get(over, np.arange(result.values[next(iter(names))].shape[-1]))
    return draw_lines(x, rows, over=over, unit=unit)


def draw_lines(
    x: np.ndarray,
    rows: Rows,
    *,
    over: str,
    unit: str,
    looks: Sequence[Look] = (),
    band: bool = True,
) -> go.Figure:
    """Draw rows over an axis by its name; over offsets, points on stems."""
    looks = looks or [look(place) for place in range(len(rows))]
    title, where = AXES.get(over, (over, f"{over} %{{x}}"))
    if over == "offset":
        add_by_offset(figure := go.Figure(), x, rows, looks)
        legend_under_title(style(figure, x_title=title, y_title=unit))
    else:
        figure = curves(x, rows, x_title=title, y_title=unit, where=where, looks=looks, band=band)
        figure.update_xaxes(dtick=1 if np.ptp(x) < DENSE else None)
    if unit.startswith(("share", "probability")):
        figure.update_yaxes(rangemode="tozero")
    return figure


def heads(result: Result, name: str, *, hover_text: str = "", **cells: Any) -> go.Figure:
    """Draw a value per head; ``hover_text`` is what hover adds to it."""
    value, error = result.values[name], result.errors.get(name)
    spread = "" if error is None else " ± %{customdata[0]:.2g}"
    hover = f"{result.units[name]} <b>%{{z:.3f}}</b>{spread}{hover_text}"
    extra = [0 * value if error is None else error, *cells.pop("extra", ())]
    unit, cells["customdata"] = result.units[name], np.dstack(extra)
    if unit.startswith("share"):
        return share_map(value, hover_text=hover, title="", unit=unit, **cells)
    cells["colorbar"] = {"title": unit}
    return head_map(value, hover_text=f"<br>{hover}", **cells)


def alike(numbers: np.ndarray) -> dict[int, str]:
    """Return the first of each run of heads with one number ``[head]``, and what the run is called.

    Heads that share keys have the same number of all that is about keys: ``H0`` or ``H0-H2``.
    """
    ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    return {
        first: f"H{first}" if end == first + 1 else f"H{first}-H{end - 1}"
        for first, end in zip([0, *ends[:-1]], ends, strict=True)
    }
