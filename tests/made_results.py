"""Made results of the experiments on random tokens, and what tests read off their figures."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from poskernel_core.analyses.base import Result
from poskernel_core.analyses.position_vs_token import CONDITIONS
from poskernel_core.layouts import ROLES, pairs_layout, second_positions

LAYERS = 2
CASES = ("start token, [A] at 1", "none, [A] at 0", "none, [A] at 1")
SHARE = "share of attention"
PER_QUERY = ("layer", "head", "query")


def result(
    analysis: str, shapes: dict[str, tuple[tuple[str, ...], tuple[int, ...]]], **more: Any
) -> Result:
    """A result of random positive values with errors of a tenth, softmaxed where a pattern."""
    random = np.random.default_rng(7)
    values = {name: random.uniform(0.1, 1.0, shape) for name, (_, shape) in shapes.items()}
    for name in values:
        if name == "pattern":
            values[name] = np.tril(values[name])
            values[name] /= values[name].sum(axis=-1, keepdims=True)
    return Result(
        analysis=analysis,
        params={"trend_from": 1},
        values=values | more.pop("codes", {}),
        axes={name: axes for name, (axes, _) in shapes.items()} | more.pop("code_axes", {}),
        units=dict.fromkeys(shapes, SHARE)
        | {"role": "role", "largest_offset": "tokens", "visible": "tokens"},
        errors={name: value / 10 for name, value in values.items()},
        provenance={"model": "demo", "conditions": CONDITIONS, "cases": CASES},
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
            "probability": (("second", "pair"), (len(seconds), candidates)),
            "probability_other": (("second",), (len(seconds),)),
            "last_row": (("second", "layer", "head", "key"), (*rows, length)),
            "candidate_attention": (("second", "layer", "head", "pair"), (*rows, candidates)),
        },
        codes={"role": np.array([layout.roles() for layout in layouts])},
        code_axes={"role": ("second", "pos")},
        labels={"role": ROLES},
        coordinates={"second": seconds},
    )


def patterns(length: int = 13, heads: int = 8) -> Result:
    """A result of the attention in one row."""
    return result(
        "recency-patterns",
        {"pattern": ((*PER_QUERY, "key"), (LAYERS, heads, length, length))},
        codes={"role": np.array(pairs_layout(length, 2, length - 3, 2, True).roles())},
        code_axes={"role": ("pos",)},
        labels={"role": ROLES},
    )


def rows(length: int = 48, heads: int = 3) -> Result:
    """A result of attention to random tokens."""
    every = (PER_QUERY, (LAYERS, heads, length))
    return result(
        "random-attention",
        {
            "pattern": ((*PER_QUERY, "key"), (LAYERS, heads, length, length)),
            "slope": every,
            "rank_correlation": every,
            "norm": (("head_of_layer_0", "pos"), (heads, length)),
            "norm_exponent": (("head_of_layer_0",), (heads,)),
        },
        codes={"visible": np.arange(1, length + 1)},
        code_axes={"visible": ("pos",)},
    )


def parts(length: int = 13, heads: int = 3) -> Result:
    """A result of position against token."""
    cell, axes = (3, LAYERS, heads), ("condition", "layer", "head")
    found = result(
        "position-vs-token",
        {
            "score": ((*axes, "query", "key"), (*cell, length, length)),
            "pattern": ((*axes, "query", "key"), (*cell, length, length)),
            "profile": ((*axes, "offset"), (*cell, length)),
            "largest_mass": (axes, cell),
        },
        codes={"largest_offset": np.full(cell, 2)},
        code_axes={"largest_offset": axes},
    )
    found.values["score"][:, :, :, *np.triu_indices(length, 1)] = np.nan
    return found


def zero(length: int = 11) -> Result:
    """A result of the test of position 0; the case without a start token is one key shorter."""
    found = result(
        "position-zero",
        {
            "probability": (("case",), (3,)),
            "probability_other": (("case",), (3,)),
            "last_row": (("case", "layer", "head", "key"), (3, LAYERS, 3, length)),
        },
    )
    for arrays in (found.values, found.errors):
        arrays["last_row"][1, ..., 0] = np.nan
    return found


def scores() -> Result:
    """A result of the search for induction heads."""
    names = ("induction", "duplicate", "previous_mass")
    return result("induction-scores", dict.fromkeys(names, (("layer", "head"), (LAYERS, 5))))


def named(figure: go.Figure, name: str) -> go.Scatter:
    """The curve whose name begins with `name`, not its band."""
    curves = [trace for trace in figure.data if trace.line.width != 0]
    return next(trace for trace in curves if trace.name.startswith(name))


def titles(figure: go.Figure) -> tuple[str, str, str]:
    """The figure's title and those of its axes."""
    axes = figure.layout.xaxis.title.text, figure.layout.yaxis.title.text
    return figure.layout.title.text, *axes
