"""The mathematics of positional kernels by hand; models against oracles are tests of analyses."""

import numpy as np
import pytest

from poskernel_core.analyses.kernels import formulas as kernels
from tests.support import oracles

# kernel (its last key is the query's own), half-mass distance
HALF_MASS = [
    ([1.0], 0.5),
    ([0.0, 0.0, 1.0], 0.5),
    ([1.0, 0.0, 0.0], 2.5),
    ([0.25, 0.25, 0.25, 0.25], 2),
    ([0.25, 0.375, 0.25, 0.125, 0.0], 3 + 1 / 3),
    ([0.1] * 10, 5),
]
# local mass, ETC, visible, local share, uniform share, kind
KINDS = [
    (0.5, 90.0, 97.0, 0.5, 0.5, "local"),
    (0.49, 48.5, 97.0, 0.5, 0.5, "uniform"),
    (0.49, 48.4, 97.0, 0.5, 0.5, "slow decay"),
    (0.49, 48.4, 97.0, 0.4, 0.5, "local"),
    (0.49, 48.4, 97.0, 0.5, 0.4, "uniform"),
    (0.49, 90.0, 97.0, 0.5, 0.95, "slow decay"),
]


def draw(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def test_queries_of_one_group_are_no_pair():
    """Of two groups that never differ from each other, what differs within them does not count.

    Queries that share no key give 1.
    """
    by_place = np.repeat(np.eye(3), 2, axis=0)[None]  # samples 0 and 1 are the first of each group
    np.testing.assert_allclose(kernels.query_variation(by_place, 2), [0.0], atol=1e-7)
    np.testing.assert_allclose(kernels.query_variation(np.eye(5)[None], 5), [1.0], atol=1e-7)
    for groups in (0, 1):
        assert np.isnan(kernels.query_variation(by_place, groups)).all()


def test_huge_scores():
    found = kernels.kernel_rows(1e6 * draw(3, 2, 3, 5), draw(4, 2, 7, 5), 1.0)
    np.testing.assert_allclose(found.sum(axis=-1), np.ones((2, 3)))


@pytest.mark.parametrize(("kernel", "expected"), HALF_MASS)
def test_half_mass_distance_by_hand(kernel, expected):
    assert expected == pytest.approx(float(kernels.half_mass_distance(np.array(kernel))))
    assert expected == pytest.approx(oracles.half_mass_distance(kernel, len(kernel) - 1))


@pytest.mark.parametrize(("mass", "etc", "visible", "local", "uniform", "expected"), KINDS)
def test_kinds(mass, etc, visible, local, uniform, expected):
    code = kernels.classify(np.array(mass), np.array(etc), np.array(visible), local, uniform)
    assert expected == kernels.KINDS[int(code)]
    assert -1 == kernels.classify(np.zeros(1), np.array([np.nan]), np.zeros(1))[0]
