"""Made results of the experiments on random tokens, and what tests read off their figures."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses import find
from poskernel_core.analyses.position_vs_token.spec import CONDITIONS
from poskernel_core.analyses.rotary.bands import CHANGES
from poskernel_core.common.result import Result, texts_array
from poskernel_core.data.layouts import ROLES, pairs_layout, second_positions

LAYERS = 2
SHARE = "share of attention"
CASES = ("start token, [A] at 1", "none, [A] at 0", "none, [A] at 1")
TEXTS = {"conditions": CONDITIONS, "cases": CASES}


SIZES = {"layer": 2, "head": 3, "other": 3, "key": 11, "query": 11, "pos": 11, "offset": 11,
         "component": 5, "case": 3, "condition": 3, "way": 4, "pair": 2, "change": len(CHANGES)}  # fmt: skip
PRIMES = (13, 17, 19, 23, 29, 31, 37, 41)
"""Sizes of a question's other axes, in turn: one in another's place does not fit."""
COORDINATES = {"query", "step", "second", "factor", "budget", "distance", "subset", "shift",
               "position", "group"}  # fmt: skip
"""Axes that answers count from 2 in steps of 3 here, unless they are told otherwise."""
GIVEN = {"head": "L1H2", "query": 10, "neuron": 4, "text": "x", "word": "a", "words": "a,b"}


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
    """A result of random positive values with errors of a tenth, softmaxed where a pattern.

    Axes and units are those that the analysis declares; `codes` are values as they are.
    """
    random = np.random.default_rng(7)
    values = {name: np.array(random.uniform(0.1, 1.0, shape)) for name, shape in shapes.items()}
    for name in values:
        if name == "pattern":
            values[name] = np.tril(values[name])
            values[name] /= values[name].sum(axis=-1, keepdims=True)
    question = find(analysis)
    declared = {value.name: value for value in (*question.values, *question.texts)}
    every = values | (codes or {})
    told = TEXTS | (texts or {})
    words = {name: texts_array(text) for name, text in told.items() if name in declared}
    return Result(
        analysis=analysis,
        params={"trend_from": 1} | (params or {}),
        values=every,
        axes={name: declared[name].axes for name in (*every, *words)},
        units={name: declared[name].unit for name in (*every, *words)},
        texts=words,
        errors={name: value / 10 for name, value in values.items()},
        provenance={"model": "demo"},
        **more,
    )


def recency(length: int = 13, heads: int = 3, candidates: int = 2) -> Result:
    """A result of the recency of induction."""
    places = second_positions(length, 2, candidates, True)
    seconds = np.array(places)
    layouts = [pairs_layout(length, 2, at, candidates, True) for at in places]
    rows = (len(seconds), LAYERS, heads)
    return result(
        "induction-recency",
        {
            "probability": (len(seconds), candidates),
            "probability_other": (len(seconds),),
            "last_row": (*rows, length),
            "candidate_attention": (*rows, candidates),
        },
        {"role": np.array([layout.roles() for layout in layouts])},
        labels={"role": ROLES},
        coordinates={"second": seconds},
    )


def patterns(length: int = 13, heads: int = 8) -> Result:
    """A result of the attention in one row."""
    return result(
        "recency-patterns",
        {"pattern": (LAYERS, heads, length, length)},
        {"role": np.array(pairs_layout(length, 2, length - 3, 2, True).roles())},
        labels={"role": ROLES},
    )


def rows(length: int = 48, heads: int = 3) -> Result:
    """A result of attention to random tokens."""
    return result(
        "random-attention",
        {
            "pattern": (LAYERS, heads, length, length),
            "slope": (LAYERS, heads, length),
            "rank_correlation": (LAYERS, heads, length),
            "norm": (heads, length),
            "norm_exponent": (heads,),
        },
        {"visible_keys": np.arange(1, length + 1)},
    )


def parts(length: int = 13, heads: int = 3) -> Result:
    """A result of position against token."""
    cell = (3, LAYERS, heads)
    found = result(
        "position-vs-token",
        {
            "score": (*cell, length, length),
            "pattern": (*cell, length, length),
            "profile": (*cell, length),
            "largest_mass": cell,
        },
        {"largest_offset": np.full(cell, 2)},
    )
    found.values["score"][:, :, :, *np.triu_indices(length, 1)] = np.nan
    return found


def zero(length: int = 11) -> Result:
    """A result of the test of position 0; the case without a start token is one key shorter."""
    found = result(
        "position-zero",
        {"probability": (3,), "probability_other": (3,), "last_row": (3, LAYERS, 3, length)},
    )
    for arrays in (found.values, found.errors):
        arrays["last_row"][1, ..., 0] = np.nan
    return found


def scores() -> Result:
    """A result of the search for induction heads."""
    names = ("induction", "duplicate", "previous_mass")
    return result("induction-scores", dict.fromkeys(names, (LAYERS, 5)))


def named(figure: go.Figure, name: str) -> go.Scatter:
    """The curve whose name begins with `name`, not its band."""
    curves = [trace for trace in figure.data if trace.line.width != 0]
    return next(trace for trace in curves if trace.name.startswith(name))


def band_of(figure: go.Figure, name: str) -> go.Scatter:
    """The upper end of a curve's band of one standard error."""
    return next(trace for trace in figure.data if trace.name == f"{name} + 1 s.e.")


def check_curve(curve: go.Scatter, x: Any = None, y: Any = None, error: Any = None) -> None:
    """A curve lies where it is said to; its errors are its bars, or what hover tells."""
    bars = curve.error_y.array
    told = (curve.x, curve.y, curve.customdata if bars is None else bars)
    for expected, found in zip((x, y, error), told, strict=True):
        if expected is not None:
            np.testing.assert_allclose(found, expected, rtol=1e-12)


def titles(figure: go.Figure) -> tuple[str, str, str]:
    """The figure's title and those of its axes."""
    axes = figure.layout.xaxis.title.text, figure.layout.yaxis.title.text
    return figure.layout.title.text, *axes
