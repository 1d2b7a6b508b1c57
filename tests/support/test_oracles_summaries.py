"""The oracles of distances and summaries, against cases by hand."""

import math

import pytest

from tests.support import oracles
from tests.support.oracles_groups import query_variation


def test_query_variation_is_the_mean_over_pairs():
    """Of three kernels, two equal and one disjoint, two pairs of three are 1 apart."""
    rows = [[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]]
    assert pytest.approx(2 / 3) == query_variation(rows)


def test_query_variation_pairs_the_next_two_groups():
    """Of five groups whose first is the odd one, 4 of 10 pairs have it; places are not mixed."""
    odd, other = [0.0, 1.0], [1.0, 0.0]
    assert pytest.approx(4 / 10) == query_variation([[odd], *[[other]] * 4])
    assert 0 == query_variation([[odd, other]] * 5)


def test_query_variation_of_one_group_is_undefined():
    assert math.isnan(query_variation([]))


def test_aligned_distance_renormalises_on_the_common_offsets():
    """Position 1 has the offsets 0 and 1; of position 3 the same two are compared."""
    near, far = [0.5, 0.5, 0.0, 0.0], [0.5, 0.25, 0.05, 0.2]
    assert pytest.approx(0.3) == oracles.aligned_distance(near, 1, far, 3, 0)
    assert pytest.approx(0.3) == oracles.aligned_distance(far, 3, near, 1, 0)


def test_aligned_distance_with_skip():
    """With skip 1, the positions 2 and 3 share the offsets 0 and 1."""
    near, far = [0.0, 0.5, 0.5, 0.0], [0.0, 0.5, 0.375, 0.125]
    assert pytest.approx(0.25) == oracles.aligned_distance(near, 2, far, 3, 1)


def test_a_shifted_kernel_is_equivariant():
    rows = {
        0: [1.0, 0.0, 0.0, 0.0],
        1: [1.0, 0.0, 0.0, 0.0],
        2: [0.0, 1.0, 0.0, 0.0],
        3: [0.0, 0.0, 1.0, 0.0],
    }
    grid = {n: rows[n] for n in (1, 2, 3)}

    assert oracles.equivariance(2, grid, 0) == 0.0


def test_equivariance_leaves_out_positions_that_see_nothing():
    """With skip 1, position 0 of the grid sees no key and does not count."""
    rows = {
        0: [0.0] * 4,
        1: [0.0, 1.0, 0.0, 0.0],
        2: [0.0, 0.5, 0.5, 0.0],
        3: [0.0, 0.25, 0.0, 0.75],
    }

    # To 1: one common offset, so 0. To 3: offsets 0 and 1, (0.5, 0.5) against (1, 0).
    assert pytest.approx(0.25) == oracles.equivariance(2, rows, 1)


def test_fidelity_renormalises_the_observed_row():
    kernel, observed = [0.0, 0.5, 0.5], [0.2, 0.6, 0.2]
    assert pytest.approx(0.25) == oracles.fidelity(kernel, observed, 1)
    assert pytest.approx(0.3) == oracles.fidelity(kernel, observed, 0)


PATTERNS = [
    [[1.0, 0.0, 0.0], [0.6, 0.4, 0.0], [0.2, 0.3, 0.5]],
    [[1.0, 0.0, 0.0], [0.8, 0.2, 0.0], [0.0, 0.9, 0.1]],
]


def test_diagonal_profile_without_a_start_token():
    actual = oracles.diagonal_profile(PATTERNS, 0)
    assert [(1 + 0.4 + 0.5 + 1 + 0.2 + 0.1) / 6, (0.6 + 0.3 + 0.8 + 0.9) / 4, 0.1] == pytest.approx(
        actual
    )


def test_diagonal_profile_leaves_out_the_start_token():
    """Row and column 0 are left out, and nothing is renormalised."""
    actual = oracles.diagonal_profile(PATTERNS, 1)
    assert [(0.4 + 0.5 + 0.2 + 0.1) / 4, (0.3 + 0.9) / 2] == pytest.approx(actual)


def test_jackknife_of_a_mean_is_its_standard_error():
    """Leaving one of 1, 2, 4 and 5 out of their mean gives the usual standard error."""
    values = [1.0, 2.0, 4.0, 5.0]
    left_out = [(12 - x) / 3 for x in values]
    variance = (4 + 1 + 1 + 4) / 3
    assert math.sqrt(variance / 4) == pytest.approx(oracles.jackknife_se(left_out))
