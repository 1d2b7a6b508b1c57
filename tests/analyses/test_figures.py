"""Every figure draws its answer: each number at its place, beside its own error, under a name.

The answers are made from what the questions declare, of numbers that are all different. So what a
figure shows is found again in the answer: which value it is, and at which place of each axis.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from poskernel_core.analyses import ANALYSES
from poskernel_core.analyses.training import figures as training
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.result import Result
from tests.support.made_results import answer

BAND = {"sizes": {"band": 13}, "coordinates": {"band": np.arange(-5, 8)}}
HEADS = {"texts": {"heads": ["L0H1@m", "L0H2@m", "L1H0@m"]}, "sizes": {"pin": 3}}
NAMES = [f"L0H{head}" for head in range(5)]
SHAPED: dict[str, dict[str, Any]] = {
    "equivariant-kernel": {"sizes": {"band": 3}},
    "tangent": BAND, "previous-token": BAND, "compare-kernels": HEADS, "compare-heads": HEADS,
    "helix": {"sizes": {"component": 3}, "prompts": "repeated",
              "coordinates": {"pos": np.arange(11)}},
    "head-examples": {"sizes": {"text": 5}, "coordinates": {"text": np.arange(5)}},
    "near-kernels": {"sizes": {"component": 2}}, "equalised-norms": {"sizes": {"norms": 2}},
    "random-attention": {"coordinates": {"query": np.arange(11)}},
    "contextual-heads": {"broad": 0.3}, "recency-patterns": {"second": 8},
    "head-position-sources": {"coordinates": {"offset": np.arange(11)}},
    "longer-contexts": {"sizes": {"scaling": 3, "factor": 2}, "length": 17,
                        "coordinates": {"offset": np.arange(11)}},
    "score-components": {"sizes": {"query_component": 5, "key_component": 5}, "key": 5,
                         "texts": {"query_names": NAMES, "key_names": NAMES}},
}  # fmt: skip
"""What cannot be known of an answer from the declaration of its question."""

COMPUTED = {"kernel-map", "neuron", "neuron-latents", "token-weights", "kernel-over-training",
            "score-components", "how-many-texts", "own-text", "helix", "intervention", "verdicts",
            "position-sources", "profile", "tangent", "previous-token",
            "head-examples", "edges"}  # fmt: skip
"""Questions with figures of counts, of parts of a sum, of differences to a mean, or of pictures."""


def made(name: str) -> Result:
    return answer(name, **SHAPED.get(name, {}))


def numbers(values: Any) -> np.ndarray:
    """What is drawn along an axis, if it is numbers."""
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        return np.empty(0)


def places(arrays: dict[str, np.ndarray], drawn: np.ndarray) -> tuple[str, list[np.ndarray]]:
    """The array that holds all numbers that are drawn, and the places of each along its axes.

    Or several values of one head, each a number: all their names.
    """
    alone = {name: float(array) for name, array in arrays.items() if not array.ndim}
    some = [
        name for each in drawn.ravel() for name in alone if np.isclose(alone[name], each, 1e-5, 0)
    ]
    if len(some) == len(drawn):
        return " ".join(some), []
    for name, array in arrays.items():
        flat = np.append(array.ravel().astype(float), np.inf)
        order = np.argsort(flat)
        at = order[np.searchsorted(flat[order], drawn * (1 - 1e-6))]
        if array.ndim and array.dtype.kind == "f" and np.allclose(flat[at], drawn, 1e-5, 0):
            return name, list(np.unravel_index(at, array.shape))
    return "", []


def shown(found: Result, trace: Any) -> str:
    """The value that a trace shows as it is, seen to be at the right places, and what is fixed.

    Fixed is the place on an axis that all its numbers share. An empty text: it is computed.
    """
    across = getattr(trace, "orientation", None) == "h"
    along, drawn = (trace.y, trace.x) if across else (trace.x, trace.y)
    along, drawn = numbers(along), numbers(trace.z if trace.type == "heatmap" else drawn)
    known = np.isfinite(drawn)
    name, at = places(found.values, drawn[known])
    if not name and trace.type == "heatmap":  # colours on a log scale
        name, at = places(found.values, np.exp(drawn[known]))
    if not name or not known.any():
        return ""
    axes = found.axes.get(name, ())
    if drawn.ndim == 2:
        for index in at:  # an axis runs over rows or over columns
            each = ({*zip(line, index, strict=True)} for line in np.nonzero(known))
            assert any(len(pairs) <= max(drawn.shape) for pairs in each), name
    elif along.shape == drawn.shape:
        beside, where = places(found.values, along[known])
        for axis, index in zip(found.axes.get(beside, ()), where, strict=False):
            assert beside == name or axis not in axes or (index == at[axes.index(axis)]).all(), (
                name,
                beside,
            )
        counted = [
            found.coordinates.get(axis, np.arange(99))[index]
            for axis, index in zip(axes, at, strict=True)
        ]
        ways = [along[known] + sign * each for each in counted for sign in (1, -1)]
        ranked = (np.diff(drawn) <= 0).all() and (np.diff(along) == 1).all()
        assert (
            beside
            or ranked
            or not axes
            or any(np.ptp(way) < 1e-6 and (len(way) > 1 or not way[0]) for way in ways)
        ), name
    bars = trace.error_x if across else getattr(trace, "error_y", None)
    if bars is not None and bars.array is not None:
        error, where = places(found.errors, numbers(bars.array)[known])
        same = len(where) == len(at) and np.array_equal(where, at)
        assert bars.symmetric is False or (same and error.startswith(name)), name
    fixed = (f"{index[0]}" for index in at if (index == index[0]).all())
    return " ".join([name, *fixed])


def look_at(found: Result, figure: go.Figure) -> dict[str, str]:
    """What each trace of a figure shows, by its name; the edges of a band lie one error off."""
    names = {}
    for trace in figure.data:
        if trace.type not in ("scatter", "bar", "heatmap"):
            continue
        assert (
            trace.showlegend is False
            or trace.name
            or len(figure.data) == 1
            or figure.layout.annotations
        )
        assert "nan" not in str("marker" in trace and trace.marker.color)
        if not str(trace.name).endswith("1 s.e.") or trace.line.width != 0:
            names[str(trace.name)] = shown(found, trace)
            continue
        (middle,) = (
            each for each in figure.data
            if each.legendgroup == trace.legendgroup and each.line.width != 0
        )  # fmt: skip
        off = np.abs(middle.customdata) * (1 if "+" in trace.name[-8:] else -1)
        np.testing.assert_allclose(trace.y, middle.y + off)
        name, at = places(found.values, middle.y)
        assert not name or np.allclose(found.errors[name][tuple(at)], middle.customdata)
    assert figure.data
    return names


HEAD = {"layer": 1, "head": 2}


@pytest.mark.parametrize("name", ANALYSES)
def test_the_figure_of_every_question(name: str) -> None:
    """Of a whole answer, and of each part that one can choose."""
    found = made(name)
    parts = [{"head": HEAD, "query": {"query": 8}}[each] for each in ANALYSES[name].selectable()]
    for chosen in ({}, *parts, {key: at for part in parts for key, at in part.items()}):
        part = found.select(**chosen)
        names = look_at(part, figure_of(part))
        assert any(names.values()) or name in COMPUTED, chosen


FIGURES: list[tuple[str, dict[str, int], Callable[..., go.Figure], list[Any], dict[str, str]]] = [
    ("additivity", {"layer": 1}, figure_of, [], {
        each: f"{each}_share" for each in ("position", "content", "interaction")}),
    ("additivity", HEAD, figure_of, [], {"content": "content_similarity"}),
    ("extended-embedding", {}, figure_of, [], {"extended": "cosine", "token": "plain_cosine"}),
    ("contextual-neurons bag_centred_r2", {}, figure_of, [], {
        f"variants {place}": f"bag_centred_r2 {place}" for place in range(13)}),
    ("neuron-trace", {}, figure_of, [], {
        "true": "true", "predicted": "predicted", "bag": "bag", "position": "position",
        "other": "others", "current": "direct"}),
    ("contextual-heads", HEAD, figure_of, [], {
        "the same": "duplicate_attention", "another": "baseline"}),
    ("denominators denominator_cv predicted_cv etc", {}, figure_of, [], {
        "observed": "denominator_cv", "predicted": "predicted_cv"}),
    ("denominators", {}, figure_of, [], {
        "13 windows": "denominator", "mean": "mean", "own_texts 1": "own_denominator 1"}),
    ("longer-contexts loss", {}, figure_of, [], {
        f"scaling {place} angles": f"loss {place} 1" for place in range(3)}),
    ("dilution", HEAD, figure_of, [], {"ETC": "etc", "all": "visible_keys"}),
    ("foreseen-attention", HEAD, figure_of, [], {"kernel": "captured 0", "best": "captured 3"}),
    ("foreseen-attention cache_for_95 fixed_cache_for_95", {}, figure_of, [], {
        "by kernel": "cache_for_95", "first 4": "fixed_cache_for_95"}),
    ("how-many-texts", HEAD, figure_of, [], {"measured": "error"}),
    ("induction-recency", {}, figure_of, [], {
        "[B]": "probability 0", "[C]": "probability 1", "other": "probability_other"}),
    ("induction-recency", HEAD, figure_of, [], {
        "[B]": "candidate_attention 0", "[C]": "candidate_attention 1"}),
    ("induction-recency last_row role", HEAD, figure_of, [], {"": "last_row"}),
    ("intervention clean_loss changed_loss", {}, figure_of, [], {
        "clean": "clean_loss", "changed": "changed_loss"}),
    ("intervention kl", {}, figure_of, [], {"KL": "kl"}),
    ("intervention previous_mass_change", {}, figure_of, [], {"": "previous_mass_change"}),
    ("place-and-content", HEAD, figure_of, [], {
        "place": "place_share", "content": "content_share", "both": "both_share",
        "covariance": "covariance_share"}),
    ("position-vs-token score", HEAD | {"query": 8}, figure_of, [], {
        f"conditions {place}": f"score {place}" for place in range(3)}),
    ("position-vs-token pattern", HEAD | {"query": 8}, figure_of, [], {
        f"conditions {place}": f"pattern {place}" for place in range(3)}),
    ("position-vs-token profile largest_offset", HEAD, figure_of, [], {
        f"conditions {place}": f"profile {place}" for place in range(3)}),
    ("position-vs-token pattern", HEAD | {"condition": 0}, figure_of, [], {"": "pattern"}),
    ("position-zero", HEAD, figure_of, [], {
        "cases 0": "last_row 0", "cases 2": "last_row 2", "[B]": "last_row 2"}),
    ("rotary-spectrum", HEAD, figure_of, [], {
        "amplitude": "amplitude", "swing": "swing", "phase": "phase"}),
    ("rotary-spectrum wavelength usage swing amplitude", HEAD, figure_of, [], {"usage": "usage"}),
    ("rotary-spectrum wavelength query_share key_share mean_share_queries mean_share_keys", HEAD,
     figure_of, [], {"queries": "query_share", "keys": "key_share"}),
    ("equivariant-kernel positional_logit band_logit", HEAD, figure_of, [], {
        "S(D)": "positional_logit", "short": "band_logit 0", "long": "band_logit 2"}),
    ("equivariant-kernel", HEAD, figure_of, [], {
        "equivariant": "equivariant_kernel", "positional": "mean_key_kernel",
        "observed": "observed"}),
    ("equivariant-kernel positional_logit equivariant_kernel without_band", HEAD, figure_of, [], {
        "all": "equivariant_kernel", "without long": "without_band 2"}),
    ("changed-bands profile", {}, partial(figure_of, treatment="removed"), [], {
        "clean": "profile 0", "long ones removed": "profile 6"}),
    ("over-training", {}, training.curves, [["L0H1", "L1H2"]], {
        "L0H1": "measure 0 1", "L1H2": "measure 1 2"}),
]  # fmt: skip
"""A question (and its values, unless it is all), what is chosen of its answer, a figure, the
figure's choices, and what each trace shows: a value, and the places that are fixed in it, by how
the trace's name begins.
"""


@pytest.mark.parametrize(
    "case", FIGURES, ids=lambda case: f"{case[0]} {getattr(case[2], '__name__', '')}"
)
def test_each_name_belongs_to_its_value(case) -> None:
    name, chosen, draw, choices, values = case
    question, *names = name.split()
    found = made(question).only(*names or made(question).values).select(**chosen)
    names = look_at(found, draw(found, *choices))
    for start, value in values.items():
        assert value == next(one for name, one in names.items() if name.startswith(start)), start
