"""Heads placed by their kernels: by hand, by loops over all pairs, and as models give them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.analyses import find
from poskernel_core.analyses.kernels.near import NearKernels, classical_scaling, stress
from poskernel_core.analyses.views import figure_of
from poskernel_core.engine.engine import describe_run
from tests.support import oracles
from tests.support.made_results import result
from tests.support.refusals import refused

RECTANGLE = [[0, 4, 2, math.sqrt(20)], [4, 0, math.sqrt(20), 2],
               [2, math.sqrt(20), 0, 4], [math.sqrt(20), 2, 4, 0]]  # fmt: skip
"""The distances between the corners of a rectangle of 4 by 2."""


@pytest.mark.parametrize(
    ("distance", "places"),
    [
        ([[0, 1, 4], [1, 0, 3], [4, 3, 0]], [(-5 / 3, 0), (-2 / 3, 0), (7 / 3, 0)]),
        (RECTANGLE, [(2, 1), (-2, 1), (2, -1), (-2, -1)]),
        ([[0, 3], [3, 0]], [(1.5, 0), (-1.5, 0)]),
        ([[0]], [(0, 0)]),
    ],
)
def test_places_by_hand(distance, places):
    distance = np.array(distance, dtype=float)
    found = classical_scaling(distance)
    np.testing.assert_allclose(found, places, atol=1e-7)
    assert 0 == pytest.approx(stress(distance, found), abs=1e-7)


@given(st.integers(0, 2**20), st.integers(3, 17))
def test_points_of_a_plane_come_back(seed, heads):
    generator = np.random.default_rng(seed)
    points = generator.uniform(size=(heads, 2)) * (1, 0.6)
    order = generator.permutation(heads)
    distance = np.linalg.norm(points[:, None] - points, axis=-1)

    found = classical_scaling(distance)
    moved = classical_scaling(distance[np.ix_(order, order)])

    again = np.linalg.norm(found[:, None] - found, axis=-1)
    np.testing.assert_allclose(again, distance, atol=1e-6)
    assert (found.max(axis=0) >= -found.min(axis=0) - 1e-9).all()
    sizes = np.linalg.norm(found, axis=0)
    if sizes[1] < 0.99 * sizes[0]:  # else a turned plane is as good
        for mine, its in zip(found[order].T, moved.T, strict=True):
            assert min(np.abs(mine - its).max(), np.abs(mine + its).max()) < 1e-6


def composed(kernels):
    """The answer from kernels [layer, head, key]."""
    kernel = result("kernel", {}, {"kernel": kernels})
    run = describe_run("demo-attn-2l")
    return NearKernels().compose({"kernel": kernel}, run, NearKernels.params())


def test_oracle():
    """Places are those of plain scaling by power iteration, the stress that of a loop."""
    kernels = np.random.default_rng(5).dirichlet(np.linspace(0.1, 1, 11), size=(3, 5))
    found = composed(kernels)

    rows, places = kernels.reshape(15, 11).tolist(), found.values["place"].reshape(15, 2)
    wrong = whole = 0.0
    for one, here in zip(rows, places.tolist(), strict=True):
        for other, there in zip(rows, places.tolist(), strict=True):
            apart = oracles.total_variation(one, other)
            wrong += (apart - math.dist(here, there)) ** 2
            whole += apart**2
    assert math.sqrt(wrong / whole) == pytest.approx(float(found.values["stress"]))
    assert 0 < found.values["stress"] < 1
    for mine, its in zip(places.T, scaled(rows), strict=True):
        assert max(map(abs, its)) == max(its)
        np.testing.assert_allclose(mine, its, atol=1e-6)


def scaled(rows):
    """The two components of classical scaling, by power iteration in plain loops."""
    count = range(len(rows))
    squares = [[oracles.total_variation(one, other) ** 2 for one in rows] for other in rows]
    means = [sum(row) / len(rows) for row in squares]
    whole = sum(means) / len(rows)
    centred = [[-(squares[a][b] - means[a] - means[b] + whole) / 2 for a in count] for b in count]
    for _ in range(2):
        vector = [math.sin(place + 1) for place in count]
        for _ in range(2000):
            vector = [sum(c * v for c, v in zip(row, vector, strict=True)) for row in centred]
            size = math.hypot(*vector)
            vector = [v / size for v in vector]
        if -min(vector) > max(vector):
            vector = [-v for v in vector]
        yield [math.sqrt(size) * v for v in vector]
        centred = [[centred[a][b] - size * vector[a] * vector[b] for a in count] for b in count]


def test_layers_without_heads():
    kernels = np.random.default_rng(7).dirichlet(np.ones(7), size=(3, 5))
    kernels[1] = np.nan
    found = composed(kernels)
    places = composed(kernels[[0, 2]]).values["place"]
    expected = np.stack([places[0], np.full((5, 2), np.nan), places[1]])
    np.testing.assert_array_equal(expected, found.values["place"])
    (points,) = figure_of(found).data
    assert (["L0H0", "L2H4"], 10) == ([points.text[0], points.text[-1]], len(points.x))
    assert figure_of(found.select(layer=2, head=3)).data


def test_it_asks_for_kernels_at_the_query_and_skip():
    question, run = find("near-kernels"), describe_run("demo-gpt2")
    (part,) = question.parts(run, question.params(query=47, skip=3)).values()
    assert (47, 3) == (part.params.query, part.params.skip)
    with refused("Expected a query position from 4"):
        question.parts(run, question.params(query=3))
