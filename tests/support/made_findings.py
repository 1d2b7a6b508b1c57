"""Made parts of results, and what is found in them."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from poskernel_core.analyses import find
from poskernel_core.analyses.findings import finding_of
from poskernel_core.common.result import NORMAL, Result, texts_array

INSIDE = 0.99 * NORMAL
"""Errors between a number and a limit that its 95 % interval certainly holds."""


def found(
    analysis: str,
    numbers: dict[str, Any],
    params: dict[str, Any] | None = None,
    texts: dict[str, Any] | None = None,
    coordinates: dict[str, Any] | None = None,
    **chosen: int,
) -> str:
    """What is found in a part of a result: each number alone (exact), or a pair with its error."""
    question = find(analysis)
    declared = {value.name: value for value in (*question.values, *question.texts)}
    pairs = {name: each if isinstance(each, tuple) else (each,) for name, each in numbers.items()}
    values = {name: np.array(each[0], dtype=float) for name, each in pairs.items()}
    words = {name: texts_array(each) for name, each in (texts or {}).items()}
    made = Result(
        analysis=analysis,
        params=params or {},
        values=values,
        axes={
            name: tuple(axis for axis in declared[name].axes if axis not in chosen)
            for name in (*values, *words)
        },
        units={name: declared[name].unit for name in (*values, *words)},
        texts=words,
        errors={
            name: np.broadcast_to(np.array(each[1], dtype=float), values[name].shape)
            for name, each in pairs.items()
            if len(each) > 1
        },
        coordinates={axis: np.array(each) for axis, each in (coordinates or {}).items()},
        chosen=chosen,
    )
    sentence = finding_of(made)
    assert sentence == "" or (sentence[-1] == "." and len(sentence) <= 200)
    return sentence


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
