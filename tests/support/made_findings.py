"""Made parts of results, and what is found in them."""

import re
from typing import Any

import numpy as np
from hypothesis import strategies as st

from poskernel_core.analyses import find
from poskernel_core.analyses.views import finding_of
from poskernel_core.common.result import NORMAL, Result, texts_array

INSIDE = 0.99 * NORMAL
"""Errors between a number and a limit that its 95 % interval certainly holds."""


def made(analysis, numbers, errors=None, *, chosen=None, texts=None, params=None, **more):
    """A result with some of the values that a question declares, at the chosen places."""
    question, chosen = find(analysis), chosen or {}
    declared = {value.name: value for value in (*question.values, *question.texts)}
    names = (*numbers, *(texts or {}))
    return Result(
        analysis=analysis,
        params=params or {},
        values={
            name: np.array(value, dtype=getattr(value, "dtype", float))
            for name, value in numbers.items()
        },
        errors={
            name: np.broadcast_to(np.array(error, dtype=float), np.shape(numbers[name]))
            for name, error in (errors or {}).items()
        },
        axes={n: tuple(a for a in declared[n].axes if a not in chosen) for n in names},
        units={name: declared[name].unit for name in names},
        texts={name: texts_array(text) for name, text in (texts or {}).items()},
        chosen=chosen,
        **more,
    )


def found(
    analysis: str,
    numbers: dict[str, Any],
    params: dict[str, Any] | None = None,
    texts: dict[str, Any] | None = None,
    coordinates: dict[str, Any] | None = None,
    **chosen: int,
) -> str:
    """What is found in a part of a result: each number alone (exact), or a pair with its error."""
    pairs = {name: each if isinstance(each, tuple) else (each,) for name, each in numbers.items()}
    result = made(
        analysis,
        {name: each[0] for name, each in pairs.items()},
        {name: each[1] for name, each in pairs.items() if len(each) > 1},
        chosen=chosen, texts=texts, params=params,
        coordinates={axis: np.array(each) for axis, each in (coordinates or {}).items()},
    )  # fmt: skip
    sentence = finding_of(result)
    if sentence:
        check(sentence)
    return sentence


def check(sentence, *parts):
    """A finding says what it should, in this order; the form is that of every finding."""
    assert re.fullmatch(r"[A-Z0-9](?:(?!\. |\n|–|\bnan\b).){1,238}\.", sentence), sentence
    assert re.search(".*".join(map(re.escape, parts)), sentence), sentence


@st.composite
def uncertain(draw: st.DrawFn, limit: float = 0.0) -> tuple[float, float]:
    """A number whose 95 % interval holds a limit, and its error."""
    error = draw(st.floats(1e-3, 0.1))
    return limit + draw(st.floats(-INSIDE, INSIDE)) * error, error


@st.composite
def alike(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    """Two numbers whose difference may be zero, and their errors."""
    errors = [draw(st.floats(1e-3, 0.1)) for _ in range(2)]
    first = draw(st.floats(0.2, 0.8))
    gap = draw(st.floats(-INSIDE, INSIDE)) * float(np.hypot(*errors))
    return [first, first + gap], errors
