"""Oracles against cases worked out by hand, where no test of the core has the same case."""

import math

import pytest

from tests.support import oracles
from tests.support import oracles_positions as op
from tests.support.oracles_groups import query_variation

NEAR, FAR = [0.5, 0.5, 0.0, 0.0], [0.5, 0.25, 0.05, 0.2]
PATTERNS = [
    [[1.0, 0.0, 0.0], [0.6, 0.4, 0.0], [0.2, 0.3, 0.5]],
    [[1.0, 0.0, 0.0], [0.8, 0.2, 0.0], [0.0, 0.9, 0.1]],
]


def test_query_variation():
    """Two of three pairs are 1 apart; of five groups the odd one is in 4 of 10 pairs."""
    odd, other = [0.0, 1.0], [1.0, 0.0]
    assert pytest.approx(2 / 3) == query_variation([[other], [other], [odd]])
    assert pytest.approx(4 / 10) == query_variation([[odd], *[[other]] * 4])
    assert 0 == query_variation([[odd, other]] * 5)  # places are not mixed
    assert math.isnan(query_variation([]))


def test_aligned_distance():
    """Position 1 has the offsets 0 and 1; of position 3 the same two are compared."""
    assert pytest.approx(0.3) == oracles.aligned_distance(NEAR, 1, FAR, 3, 0)
    assert pytest.approx(0.3) == oracles.aligned_distance(FAR, 3, NEAR, 1, 0)
    near, far = [0.0, 0.5, 0.5, 0.0], [0.0, 0.5, 0.375, 0.125]
    assert pytest.approx(0.25) == oracles.aligned_distance(near, 2, far, 3, 1)


def test_equivariance():
    """With skip 1, position 0 of the grid sees no key and does not count."""
    back = {n: [float(i == max(n - 1, 0)) for i in range(4)] for n in (1, 2, 3)}
    assert 0 == oracles.equivariance(2, back, 0)
    rows = {0: [0.0] * 4, 1: [0.0, 1.0, 0.0, 0.0], 2: [0.0, 0.5, 0.5, 0.0], 3: [0.0, 0.25, 0, 0.75]}
    # To 1: one common offset, so 0. To 3: offsets 0 and 1, (0.5, 0.5) against (1, 0).
    assert pytest.approx(0.25) == oracles.equivariance(2, rows, 1)


def test_fidelity_renormalises_the_observed_row():
    kernel, observed = [0.0, 0.5, 0.5], [0.2, 0.6, 0.2]
    assert pytest.approx(0.25) == oracles.fidelity(kernel, observed, 1)
    assert pytest.approx(0.3) == oracles.fidelity(kernel, observed, 0)


def test_diagonal_profile():
    """Behind a start token, row and column 0 are left out, and nothing is renormalised."""
    whole = [(1 + 0.4 + 0.5 + 1 + 0.2 + 0.1) / 6, (0.6 + 0.3 + 0.8 + 0.9) / 4, 0.1]
    assert whole == pytest.approx(oracles.diagonal_profile(PATTERNS, 0))
    behind = [(0.4 + 0.5 + 0.2 + 0.1) / 4, (0.3 + 0.9) / 2]
    assert behind == pytest.approx(oracles.diagonal_profile(PATTERNS, 1))


def test_jackknife_of_a_mean_is_its_standard_error():
    """Leaving one of 1, 2, 4 and 5 out of their mean gives the usual standard error."""
    left_out = [(12 - x) / 3 for x in (1.0, 2.0, 4.0, 5.0)]
    assert math.sqrt(10 / 3 / 4) == pytest.approx(oracles.jackknife_se(left_out))


def test_extended_positions_and_their_spread():
    """Two tokens whose rows deviate from their mean by 1 and by 3."""
    streams = [[[1.0], [-1.0]], [[13.0], [7.0]]]
    assert [[2.0], [-2.0]] == op.extended_positions(streams)
    assert 0.5 == op.token_spread(streams)


def test_profiles():
    """Scores `10 n + i` average over what lies between start and end."""
    q, k = [[10.0 * n, 1.0] for n in range(4)], [[1.0, float(i)] for i in range(4)]
    assert {-1: 17.5, 0: 22.0, 1: 26.5} == op.score_profile(q, k, 1.0, 1, 1)
    assert (1.5, 4.0) == op.contrasts({-1: 1.0, 0: 3.5, 1: 7.0, 2: 4.0})
    assert ((1, 0.5), (3, 0.25), 0.5) == op.largest_two([0.125, 0.5, 0.0, 0.25])


def test_previous_mass():
    pattern = [[1.0], [0.75, 0.25], [0.25, 0.5, 0.25], [0.0, 0.0, 0.125, 0.875]]
    assert (0.5, 0.125) == op.previous_mass(pattern, [4, 4, 4, 7], 1)
    assert math.isnan(op.previous_mass(pattern, [1, 2, 3, 4], 0)[0])


def test_divergences():
    assert math.log(2) == pytest.approx(op.kl([1.0, 0.0], [0.5, 0.5]))
    assert math.inf == op.kl([0.5, 0.5], [1.0, 0.0]) == op.nll([1.0, 0.0], 1)
    assert math.log(4) == op.nll([0.75, 0.25], 1)
