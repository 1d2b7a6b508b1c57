"""How heads read the helix: by hand where a model draws one, by plain loops on random models."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from poskernel_core.analyses.helix.formulas import STREAM_SUMS
from poskernel_core.analyses.helix.tangent import Tangent, TangentParams
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.specs import BAND
from poskernel_core.data.made import repeated_windows
from tests.support import builders
from tests.support import oracles_positions as op
from tests.support.oracles import dot, mean
from tests.support.oracles_groups import error_and_bias
from tests.support.passes import gather
from tests.support.raw import analyse
from tests.support.refusals import refused

T, W = 53, 2 * math.pi * 5 / 53
TEXTS, CONTEXT = 5, 37
PARTS = ("position_score", "tangent_part", "radial_part", "third_part", "rest")
SHARES = ("tangent_share", "radial_share", "third_share")
GATHER = ("keys", "residuals", "scores")


@pytest.fixture(scope="module")
def windows():
    ids = builders.random_ids(TEXTS, CONTEXT, seed=5).numpy()
    ids[:, 0] = builders.START
    return ids


@pytest.fixture(scope="module")
def passes(model_dirs, windows):
    return {name: gather(model_dirs[name], windows, True, GATHER) for name in ("gpt2", "llama")}


def cross(a, b):
    return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]


def unit(a):
    return [x / math.sqrt(dot(a, a)) for x in a]


@cache
def curve(rows):
    """Rows, centred, on their first three principal components."""
    rows = op.centred(rows)
    components = op.pca(rows, 3)[1]
    return [[dot(row, c) for c in components] for row in rows]


def split(scores, rows, n):
    """The parts of scores at all positions along the helix of rows `[pos][model]`, plain loops.

    Principal components are uncorrelated and have mean 0, so that each coefficient of the least
    squares is a quotient of two sums.
    """
    points = curve(tuple(map(tuple, rows)))
    middle = mean(scores)
    reading = []
    for j in range(3):
        column = [point[j] for point in points]
        reading.append(dot([s - middle for s in scores], column) / dot(column, column))
    radius = unit(points[n])
    step = [b - a for a, b in zip(points[n - 1], points[n + 1], strict=True)]
    along = dot(step, radius)
    tangent = unit([s - along * r for s, r in zip(step, radius, strict=True)])
    axes = {"tangent": tangent, "radial": radius, "third": cross(radius, tangent)}
    values = {"position_score": list(scores)}
    shares, rest = {}, [s - middle for s in scores]
    for name, axis in axes.items():
        size = dot(reading, axis)
        shares[f"{name}_share"] = size**2 / dot(reading, reading)
        part = values[f"{name}_part"] = [size * dot(axis, point) for point in points]
        rest = [r - p for r, p in zip(rest, part, strict=True)]
    values["rest"] = rest
    total = math.fsum((s - middle) ** 2 for s in scores)
    return values, shares, 1 - math.fsum(r * r for r in rest) / total


def in_band(row, n):
    """A row over positions at offsets from -32 to 32 around `n`, its mean taken off."""
    seen = {k: row[n - k] for k in range(-BAND, BAND + 1) if 0 <= n - k < len(row)}
    middle = mean(list(seen.values()))
    return [seen[k] - middle if k in seen else math.nan for k in range(-BAND, BAND + 1)]


def test_tangent_and_radius_in_the_middle(constructed):
    """Where the rise is 0, a tangent reader's share is what the circle has of the tangent."""
    values = analyse("tangent", constructed, query=26).values
    turn, rise = 2 * math.sin(W), 2 / 26
    circle = turn**2 / (turn**2 + rise**2)
    assert circle == pytest.approx(float(values["tangent_share"][0, 0]), abs=1e-4)
    assert 1 == pytest.approx(float(values["radial_share"][0, 1]), abs=0.005)


def test_heads_that_read_nothing(constructed):
    """Scores that are 0 everywhere have parts 0, and no shares: NaN, without a warning."""
    values = analyse("tangent", constructed, query=26).values
    for name in PARTS:
        np.testing.assert_allclose(np.nan_to_num(values[name][1:]), 0, atol=1e-9)
    for name in (*SHARES, "helix_fit"):
        assert np.isnan(values[name][1:]).all(), name
        assert np.isnan(values[name][0, 3]), name


@pytest.mark.parametrize(
    ("name", "n", "leave_out"), [("gpt2", 2, 0), ("llama", 17, 5), ("gpt2", CONTEXT - 2, 3)]
)
def test_random_models(passes, name, n, leave_out):
    result = analyse("tangent", passes[name], query=n, leave_out=leave_out)
    first = max(leave_out, 1)
    profile = passes[name].arrays["score_profile"].astype(float)
    observed = profile - np.nanmean(profile, axis=-1, keepdims=True)
    np.testing.assert_allclose(result.values["observed_score"], observed, atol=1e-5)

    for layer in range(3):
        arrays, scale = passes[name].layer(layer), passes[name].header.scales[layer]
        rows = arrays["mean_residuals"][first:].tolist()
        for head in (0, 4):
            kv = head * len(arrays["mean_keys"]) // len(arrays["mean_queries"])
            query = arrays["mean_queries"][head, n].tolist()
            keys = arrays["mean_keys"][kv, first:].tolist()
            scores = [scale * dot(query, key) for key in keys]
            parts, shares, fit = split(scores, rows, n - first)
            for value, row in parts.items():
                found = result.values[value][layer, head]
                expected = in_band(row, n - first)
                np.testing.assert_allclose(found, expected, atol=1e-4, err_msg=value)
            for value, share in {**shares, "helix_fit": fit}.items():
                found = float(result.values[value][layer, head])
                assert share == pytest.approx(found, abs=1e-4), value


def test_errors(passes, model_dirs, windows):
    result = analyse("tangent", passes["llama"], query=17)
    residuals = passes["llama"].arrays["mean_residuals"]
    without = []
    for text in range(TEXTS):
        left = gather(model_dirs["llama"], np.delete(windows, text, axis=0), True, GATHER)
        arrays = {**left.arrays, "mean_residuals": residuals}
        without.append(analyse("tangent", replace(left, parts={"keys": arrays}), query=17))

    assert {"position_score", "observed_score"} == result.errors.keys()
    for value, errors in result.errors.items():
        left = [one.values[value] for one in without]
        error, bias = error_and_bias([result.values[value], *left])
        np.testing.assert_allclose(errors, error, rtol=2e-3, atol=1e-4, err_msg=value)
        np.testing.assert_allclose(result.biases[value], bias, rtol=2e-3, atol=1e-3, err_msg=value)
        assert np.nanmax(errors) > 0.01, value


def test_the_figure_has_the_past_on_the_right(passes):
    reach = 3
    one = analyse("tangent", passes["gpt2"], query=17).select(layer=1, head=2)
    figure = figure_of(one, reach=reach)
    drawn = next(trace for trace in figure.data if trace.name == "position only")

    at = {k: float(one.select(band=int(k)).values["position_score"]) for k in drawn.x}
    assert {-1, 0, 1} <= set(at) <= set(range(-reach, reach + 1))
    assert at[-1] != pytest.approx(at[1], abs=1e-3)
    middle = np.nanmean([*at.values()])
    np.testing.assert_allclose(drawn.y, [at[k] - middle for k in drawn.x], atol=1e-6)
    low, high = figure.layout.xaxis.range
    assert low < 0 < high


def over_repeated(main, repeated):
    """The answer about texts, by the helix of repeated tokens."""
    params = TangentParams(query=17, helix_from="repeated", tokens=TEXTS)
    return Tangent().compute({"main": main, "repeated": repeated}, params, lambda *_: None).values


def test_helix_of_repeated_tokens_is_the_one_used(passes, model_dirs):
    windows = repeated_windows(293, context=CONTEXT, windows=TEXTS, avoid=0)
    stream, main = gather(model_dirs["gpt2"], windows, False, STREAM_SUMS), passes["gpt2"]
    share = over_repeated(main, stream)["tangent_share"]

    swapped = {**main.arrays, "mean_residuals": stream.arrays["mean_residuals"]}
    same = analyse("tangent", replace(main, parts={"keys": swapped}), query=17).values
    other = analyse("tangent", main, query=17).values
    np.testing.assert_allclose(share, same["tangent_share"], atol=1e-6)
    assert np.abs(share - other["tangent_share"]).max() > 0.05


@pytest.mark.parametrize(
    ("n", "leave_out", "words"),
    [
        (CONTEXT - 1, 0, "query position of 2 to 35"),
        (5, 5, "query position of 6 to 35"),
        (0, 0, "query"),
    ],
)
def test_bad_query_positions(passes, n, leave_out, words):
    with refused(words):
        analyse("tangent", passes["gpt2"], query=n, leave_out=leave_out)


def test_context_too_short(model_dirs):
    windows = builders.random_ids(2, 4).numpy()
    with refused("fewer than 4 positions"):
        analyse("tangent", gather(model_dirs["gpt2"], windows, True, GATHER), query=2)
