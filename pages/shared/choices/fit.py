"""Widgets of choices: each function returns what its widget takes, its key among it.

The widget is drawn with the reader's choice, or with the nearest that is offered. ``then`` is
called after the reader has changed it.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import isfinite
from typing import Any

import streamlit as st

from pages.shared.choices.choices import alike, fit, number, wanted, widget
from pages.shared.choices.told import among, between

Then = Callable[[], None] | None


def choose_one(
    label: str, options: Iterable[str], key: str, *, place: Any = st, default: str = "", **more: Any
) -> str:
    """Draw buttons of which one is always pressed, at first the ``default`` or the first option.

    A single option is no choice: nothing is drawn.
    """
    words = list(options)
    value: str = _one_of(key, words, default or words[0])
    if len(words) == 1:
        return value
    settings = {"options": words, "default": value, "required": True}
    pressed: str = place.segmented_control(label, **settings | widget(key, value, words) | more)
    return pressed


def fitted(
    key: str, options: Sequence[Any], default: Any, ends: tuple[Any, Any] | None = None
) -> dict[str, Any]:
    """Return what a slider over some numbers takes; in a ``range`` all between its ends.

    With ``ends``, a number that is asked for and lies between them is on offer too.
    """
    if isinstance(options, range):
        first, last = options[0], options[-1]
        value = nearest_of(key, options, default)
        return {"value": value, "min_value": first, "max_value": last} | widget(
            key, value, (first, last)
        )
    offered = sorted({*options, *_asked(key, ends, default)}) if ends else list(options)
    value = nearest_of(key, offered, default)
    return {"value": value, "options": offered} | widget(key, value, offered)


def _asked(key: str, ends: tuple[Any, Any], default: Any) -> list[Any]:
    """Return what is asked for of a number, if it lies between two ends."""
    numbers = [number(str(text)) for text in wanted(key)]
    return [type(default)(value) for value in numbers if ends[0] <= value <= ends[1]]


def nearest_of(key: str, options: Sequence[Any], default: Any, moved: str = "") -> Any:
    """Return the choice of a number, moved to the nearest on offer.

    ``moved`` is the model of which to say that it has no such number.
    """
    is_range = isinstance(options, range)

    def nearest(value: float) -> Any:
        if is_range:
            return min(max(round(value), options[0]), options[-1])
        return min(options, key=lambda option: abs(option - value))

    offered = (
        partial(between, options[0], options[-1]) if is_range else partial(among, list(options))
    )
    return fit(key, default, _number, nearest, offered, moved)


def fitted_number(
    key: str, ends: tuple[Any, Any], default: Any, slider_ends: tuple[Any, Any] | None = None
) -> dict[str, Any]:
    """Return what a slider or field for a number between two ends takes.

    A slider has the ends ``slider_ends``, beyond which it goes only as far as is asked for.
    """
    if slider_ends:
        within = *slider_ends, *_asked(key, ends, default)
        ends = min(within), max(within)

    def nearest(value: float) -> Any:
        inside = min(max(value, ends[0]), ends[1])
        return round(inside) if isinstance(default, int) else float(inside)

    value = fit(key, default, _number, nearest, partial(between, *ends))
    most = ends[1] if isfinite(ends[1]) else None
    return {"value": value, "min_value": ends[0], "max_value": most} | widget(key, value, ends)


def _number(texts: tuple[str, ...]) -> float:
    if isfinite(value := number(texts[-1])):
        return value
    raise ValueError(texts)


def fitted_index(
    key: str, options: Iterable[Any], default: Any = None, then: Then = None, lent: Any = None
) -> dict[str, Any]:
    """Return what a select box takes; a choice that is not offered becomes the default.

    The default is the first option if none is given. What is ``lent`` is shown in its place, as
    long as it is what is chosen.
    """
    offered = list(options)
    usual = offered[0] if default is None else default
    value = _one_of(key, offered, usual)
    value = lent if lent is not None and value == usual else value
    return {"options": offered, "index": offered.index(value)} | widget(key, value, offered, then)


def select_one(label: str, settings: dict[str, Any], place: Any = st) -> Any:
    """Draw a select box of what :func:`fitted_index` returns, if there are several options."""
    options = settings["options"]
    return place.selectbox(label, **settings) if len(options) > 1 else options[0]


def _one_of(key: str, options: list[Any], default: Any) -> Any:
    def read(texts: tuple[str, ...]) -> Any:
        return next((option for option in options if alike(texts[-1], option)), None)

    def offered(value: Any) -> Any:
        return value if value in options else default

    return fit(key, default, read, offered, partial(among, options))


def fitted_flag(key: str, default: bool = False) -> dict[str, Any]:
    """Return what a switch takes."""
    words = {"true": True, "false": False}
    offered = partial(str, "offered are true and false")
    value = fit(key, default, lambda texts: words.get(texts[-1].lower(), default), bool, offered)
    return {"value": value} | widget(key, value)


def fitted_text(key: str, default: str = "", most: int | None = None, then: Then = None) -> Any:
    """Return what a text field takes, of so many letters at ``most``."""
    value = fit(key, default, lambda texts: texts[-1], lambda text: text[:most])
    return {"value": value, "max_chars": most} | widget(key, value, most, then)


def fitted_list(key: str, options: Iterable[Any], default: Sequence[Any] = ()) -> dict[str, Any]:
    """Return what a field for several options takes; choices that are not offered are left out."""
    offered = list(options)
    value = list_of(key, offered, default)
    return {"options": offered, "default": value} | widget(key, value, offered)


def list_of(key: str, offered: Sequence[Any], default: Sequence[Any]) -> list[Any]:
    """Return a choice of several options; those that are not offered are left out."""

    def read(texts: tuple[str, ...]) -> list[Any]:
        return [option for text in texts for option in offered if alike(text, option)]

    def there(values: list[Any]) -> list[Any]:
        return [option for option in values if option in offered]

    chosen: list[Any] = fit(key, list(default), read, there, partial(among, list(offered)))
    return chosen


def fitted_span(key: str, first: int, last: int) -> dict[str, Any]:
    """Return what a slider with two ends takes; a span is cut to fit."""
    default = (first, last)

    def cut(ends: tuple[float, ...]) -> tuple[int, int]:
        low, high = (min(max(round(end), first), last) for end in ends)
        return (low, high) if low < high else default

    def read(texts: tuple[str, ...]) -> tuple[float, ...]:
        return tuple(_number((text,)) for text in texts)

    value = fit(key, default, read, cut, partial(between, *default))
    return {"value": value, "min_value": first, "max_value": last} | widget(key, value, default)
