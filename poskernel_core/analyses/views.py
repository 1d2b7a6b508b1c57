"""What of an answer is drawn, how it is read, and what it shows: one list a topic.

``views.py`` of a topic has ``VIEWS``, by question. Picture, reading and sentence of a result, or of
any part of it, are each those of the first view that has one and whose values are all there with
their axes: so narrow shapes stand first. What no view draws, curves by its axes do: a measure over
query positions, say, under its title.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Literal

import plotly.graph_objects as go

from poskernel_core.analyses.base import Question
from poskernel_core.analyses.claims import heads_at
from poskernel_core.analyses.pictures import along, names_along, titled
from poskernel_core.common.result import Result
from poskernel_core.common.rounding import counted
from poskernel_core.plotting.by_axes import by_axes
from poskernel_core.plotting.layout import set_title

ANY = ("...",)
"""Whatever axes a value has."""
PICK = "Click a cell, or move with the arrow keys, to select that head on all pages."


@dataclass(frozen=True)
class View:
    """A part of an answer: its picture, how it is read, and what it shows.

    Attributes:
        shape: the values and texts that it needs, with their axes, such as ``etc local_mass [layer
            head], kind []``; ``ratio [...]`` has any axes.
        draw: a function of a result, and of what a page chooses, that draws it.
        title: the title of the picture; it can name chosen places and parameters: ``scores from
            {query}``. A chosen head stands before it.
        says: a function of a result that returns a sentence, or "" where it supports none.
        reading: how to read the picture, in Markdown.
        explains: values beside those of the shape whose meaning the reading needs.
        each: an axis: a picture for each of its places, side by side.
    """

    shape: str
    draw: Callable[..., go.Figure] | None = None
    title: str = ""
    says: Callable[[Result], str] | None = None
    reading: str = ""
    explains: str = ""
    each: str = ""

    @property
    def shapes(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The values that it needs, each with its axes."""
        return _shapes(self.shape)

    @property
    def values(self) -> list[str]:
        """The values that it explains."""
        return [*(name for name, _ in self.shapes), *self.explains.split()]

    def fits(self, result: Result) -> bool:
        """Return whether a result has what it needs."""
        return all(
            name in result.axes and axes in (ANY, result.axes[name]) for name, axes in self.shapes
        )


Views = Mapping[str, tuple[View, ...]]


def heads_view(name: str, noun: str, limit: float | str, *, below: bool = False) -> View:
    """Return the view of a value that says in how many heads it reaches a limit."""
    says = partial(heads_at, name=name, noun=noun, limit=limit, below=below)
    return View(f"{name} [...]", says=says)


@cache
def _shapes(shape: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    parts = (part.rstrip("]").split("[") for part in shape.split(", "))
    return tuple((name, tuple(axes.split())) for names, axes in parts for name in names.split())


def view_of(result: Result, part: Literal["draw", "says", "reading"]) -> View | None:
    """Return the first view of a result that has a picture, a sentence, or a reading."""
    every = getattr(topic(result.analysis), "VIEWS", {}).get(result.analysis, ())
    return next((view for view in every if getattr(view, part) and view.fits(result)), None)


def figure_of(result: Result, **choices: Any) -> go.Figure:
    """Return the picture of a result, or of a part of it; ``choices`` are what a page chooses."""
    view = view_of(result, "draw")
    if view is None or view.draw is None:
        return along(result) or by_axes(result)
    if view.each:
        return figure_of(result.select(**{view.each: 0}), **choices)
    figure = view.draw(result, **choices)
    return set_title(figure, titled(result, view.title)) if view.title else figure


def figures_of(result: Result, **choices: Any) -> dict[str, Callable[[], go.Figure]]:
    """Return what makes the pictures of a result, by the names of the places that they are of."""
    view = view_of(result, "draw")
    if view is None or not view.each:
        return {"": partial(figure_of, result, **choices)}
    return {
        name: partial(figure_of, result.select(**{view.each: place}), **choices)
        for place, name in enumerate(names_along(result, view.each))
    }


def finding_of(result: Result) -> str:
    """Return what a result, or a part of it, shows, in a sentence; empty if it supports none."""
    view = view_of(result, "says")
    return view.says(result) if view is not None and view.says is not None else ""


def why_empty(result: Result) -> str:
    """Return why a part of an answer may have no number, as a sentence; empty if unknown."""
    layer, skip = result.chosen.get("layer"), result.params.get("skip") or 0
    query = result.chosen.get("query", result.params.get("query"))
    if reason := result.provenance.get("layers_without_heads", {}).get(str(layer)):
        return f"Layer {layer} has no heads: it is {reason}."
    if query is not None and query < skip:
        keys = counted(skip, "key")
        return f"No key is left at n = {query}: the first {keys} are skipped."
    return ""


@cache
def topic(question: str) -> ModuleType | None:
    """Return the module with the views of a question's topic, if it has one."""
    if question not in Question.questions:
        return None
    name = f"{type(Question.questions[question]).__module__.rpartition('.')[0]}.views"
    return import_module(name) if find_spec(name) is not None else None
