"""Made results, and what tests read off their figures."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses import find
from poskernel_core.analyses.rotary.bands import CHANGES
from poskernel_core.common.result import Result, texts_array
from tests.support.made_findings import made

SIZES = {"layer": 2, "head": 3, "other": 3, "key": 11, "query": 11, "pos": 11, "offset": 11,
         "component": 5, "case": 3, "condition": 3, "way": 4, "pair": 2, "part": 3,
         "change": len(CHANGES)}  # fmt: skip
PRIMES = (13, 17, 19, 23, 29, 31, 37, 41)
"""Sizes of a question's other axes, in turn: one in another's place does not fit."""
COORDINATES = {"query", "step", "second", "factor", "budget", "distance", "subset", "shift",
               "position", "group", "heads", "first"}  # fmt: skip
"""Axes that answers count from 2 in steps of 3 here, unless they are told otherwise."""
GIVEN = {"head": "L1H2", "query": 10, "neuron": 4, "text": "user: x", "word": "a", "words": "a,b",
         "changed": "b", "heads": "L0H1,L1H2"}  # fmt: skip


def answer(
    name: str,
    *,
    sizes: dict[str, int] | None = None,
    coordinates: dict[str, Any] | None = None,
    texts: dict[str, list[Any]] | None = None,
    **params: Any,
) -> Result:
    """An answer with all that a question declares: random numbers, each with an error of a tenth.

    Texts are the name of what they are and their number, unless they are given.
    """
    question, random = find(name), np.random.default_rng(5)
    declared = {each.name: each for each in (*question.values, *question.texts)}
    sizes, primes = SIZES | (sizes or {}), iter(PRIMES)
    for axis in (axis for each in declared.values() for axis in each.axes):
        sizes[axis] = sizes[axis] if axis in sizes else next(primes)
    shapes = {each: tuple(sizes[axis] for axis in one.axes) for each, one in declared.items()}
    values = {
        each.name: random.integers(len(each.labels), size=shapes[each.name])
        if each.labels
        else np.array(random.uniform(0.1, 1, shapes[each.name]))
        for each in question.values
    }
    words = {each.name: np.empty(shapes[each.name], object) for each in question.texts}
    for each, array in words.items():
        array.flat = [f"{each} {place}" for place in range(array.size)]
    given = {field: GIVEN[field] for field in question.params.model_fields if field in GIVEN}
    given |= {"clean": "a"} if "changed" in given else {}
    counted = {axis: 2 + 3 * np.arange(sizes[axis]) for axis in sizes if axis in COORDINATES}
    return Result(
        analysis=name,
        params=dict(question.params(**given)) | params,
        values=values,
        axes={each: one.axes for each, one in declared.items()},
        units={each: one.unit for each, one in declared.items()},
        texts=words | {each: texts_array(one) for each, one in (texts or {}).items()},
        labels={each.name: each.labels for each in question.values if each.labels},
        errors={
            each: np.array(value / 10) for each, value in values.items() if value.dtype.kind == "f"
        },
        coordinates=counted | (coordinates or {}),
        provenance={"model": "m", "context": 11, "position_scheme": "learned"},
    )


def result(
    analysis: str,
    shapes: dict[str, tuple[int, ...]],
    codes: dict[str, np.ndarray] | None = None,
    params: dict[str, Any] | None = None,
    texts: dict[str, list[Any]] | None = None,
    **more: Any,
) -> Result:
    """A result of some random positive values with errors of a tenth.

    Axes and units are those that the analysis declares; `codes` are values as they are.
    """
    random = np.random.default_rng(7)
    numbers = {name: random.uniform(0.1, 1.0, shape) for name, shape in shapes.items()}
    errors = {name: number / 10 for name, number in numbers.items()}
    given = {"params": params, "texts": texts, "provenance": {"model": "demo"}}
    return made(analysis, numbers | (codes or {}), errors, **given, **more)


def named(figure: go.Figure, name: str) -> go.Scatter:
    """The curve whose name begins with `name`, not its band."""
    curves = [trace for trace in figure.data if trace.line.width != 0]
    return next(trace for trace in curves if trace.name.startswith(name))


def check_curve(curve: go.Scatter, x: Any = None, y: Any = None, error: Any = None) -> None:
    """A curve lies where it is said to; its errors are its bars, or what hover tells."""
    bars = curve.error_y.array
    told = (curve.x, curve.y, curve.customdata if bars is None else bars)
    for expected, found in zip((x, y, error), told, strict=True):
        if expected is not None:
            np.testing.assert_allclose(found, expected, rtol=1e-12)
