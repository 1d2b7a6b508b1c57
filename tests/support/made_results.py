"""Made results of the experiments on random tokens, and what tests read off their figures."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses import find
from poskernel_core.analyses.position_vs_token.spec import CONDITIONS
from poskernel_core.common.result import Result, texts_array
from poskernel_core.data.layouts import ROLES, pairs_layout, second_positions

LAYERS = 2
SHARE = "share of attention"
CASES = ("start token, [A] at 1", "none, [A] at 0", "none, [A] at 1")
TEXTS = {"conditions": CONDITIONS, "cases": CASES}


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
