"""Distances between kernels, and the standard errors: the oracles, and algebraic properties."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poskernel_core.analyses.kernels import formulas as kernels
from poskernel_core.common.attention import first_visible
from poskernel_core.common.jackknife import jackknife
from tests import oracles
from tests.test_kernels import SEEDS, kernels_of

few = settings(max_examples=23)

# two rows, their distance
DISTANCES = [
    ([1.0, 0.0], [0.0, 1.0], 1.0),
    ([0.5, 0.5], [0.5, 0.5], 0.0),
    ([0.75, 0.25, 0.0], [0.25, 0.25, 0.5], 0.5),
]
POSITIONS = np.array([1, 3, 6, 11])


@pytest.mark.parametrize(("left", "right", "expected"), DISTANCES)
def test_total_variation_by_hand(left, right, expected):
    """Half the sum of absolute differences: 1 for disjoint rows, 0 for equal ones."""
    assert expected == float(kernels.total_variation(np.array(left), np.array(right)))


@few
@given(SEEDS)
def test_total_variation_is_a_metric(seed):
    """It lies in [0, 1], is 0 for the same row only, symmetric, and obeys the triangle."""
    a, b, c = kernels_of(seed, heads=1, samples=3)[0]

    ab, bc, ac = (float(kernels.total_variation(*p)) for p in ((a, b), (b, c), (a, c)))

    assert 0 == float(kernels.total_variation(a, a))
    assert 0 < ab <= 1
    assert ab == float(kernels.total_variation(b, a))
    assert ac <= ab + bc + 1e-12


@few
@given(SEEDS, st.sampled_from([2, 3, 17]))
def test_consistency_is_the_mean_over_pairs(seed, samples):
    """Sorting gives what the loop over all pairs gives."""
    found = kernels_of(seed, samples=samples)

    expected = [oracles.consistency(head) for head in found.tolist()]

    np.testing.assert_allclose(kernels.consistency(found), expected, atol=1e-6)


def test_consistency_at_its_ends():
    """Equal queries give 0, queries that share no key give 1, one query gives nothing."""
    same = np.repeat(kernels_of(1, samples=1), 5, axis=1)
    disjoint = np.eye(5)[None]

    np.testing.assert_allclose(kernels.consistency(same), np.zeros(3), atol=1e-7)
    np.testing.assert_allclose(kernels.consistency(disjoint), [1.0], atol=1e-7)
    assert np.isnan(kernels.consistency(same[:, :1])).all()


@pytest.mark.parametrize(("samples", "groups"), [(17, 8), (64, 8), (7, 3), (4, 2)])
def test_consistency_error(samples, groups):
    """The spread of up to eight groups' own consistency, over the root of their number."""
    found, size = kernels_of(2, samples=samples), samples // groups

    for head, error in zip(found.tolist(), kernels.consistency_error(found), strict=True):
        parts = [oracles.consistency(head[g * size : (g + 1) * size]) for g in range(groups)]
        centre = oracles.mean(parts)
        variance = math.fsum((p - centre) ** 2 for p in parts) / (groups - 1)
        assert math.sqrt(variance / groups) == pytest.approx(error, rel=1e-4)


def test_consistency_error_needs_two_groups():
    """Three queries make one group only, which has no spread."""
    assert np.isnan(kernels.consistency_error(kernels_of(2, samples=3))).all()


def grid(seed, skip):
    """Random mean kernels of two heads at `POSITIONS`, [head, query, key], zero where unseen."""
    found = np.zeros((2, len(POSITIONS), 13))
    for place, n in enumerate(POSITIONS):
        if n >= skip:
            rows = kernels_of(seed + place, heads=2, samples=1, keys=n + 1 - skip)
            found[:, place, skip : n + 1] = rows[:, 0]
    return found


@few
@given(SEEDS, st.sampled_from([0, 2, 4]))
def test_aligned_distance(seed, skip):
    """Every pair of positions that see a key is the oracle's; others have no distance."""
    rows = grid(seed, skip)

    found = kernels.aligned_distance(kernels.by_offset(rows, POSITIONS), POSITIONS, skip)

    for head in range(2):
        for a, n in enumerate(POSITIONS.tolist()):
            for b, m in enumerate(POSITIONS.tolist()):
                if min(n, m) < skip:
                    assert np.isnan(found[head, a, b])
                    continue
                pair = rows[head, a].tolist(), n, rows[head, b].tolist(), m
                expected = oracles.aligned_distance(*pair, skip)
                assert expected == pytest.approx(found[head, a, b], abs=1e-9)


def test_equivariant_kernels_have_distance_zero():
    """Kernels that depend on the offset alone do not differ once they are aligned."""
    rows = np.zeros((1, len(POSITIONS), 13))
    for place, n in enumerate(POSITIONS):
        weights = 0.5 ** np.arange(n, -1, -1)
        rows[0, place, : n + 1] = weights / weights.sum()

    found = kernels.aligned_distance(kernels.by_offset(rows, POSITIONS), POSITIONS, 0)

    np.testing.assert_allclose(found, np.zeros((1, 4, 4)), atol=1e-12)


def test_by_offset_by_hand():
    """The query's own key comes first; offsets that reach before the text hold 0."""
    rows = np.array([[[0.75, 0.25, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4]]])

    found = kernels.by_offset(rows, np.array([1, 3]))

    assert [[[0.25, 0.75, 0.0, 0.0], [0.4, 0.3, 0.2, 0.1]]] == found.tolist()


@few
@given(SEEDS)
def test_leave_one_out(seed):
    """Each mean leaves out one query, as a loop does."""
    found = kernels_of(seed)

    out = kernels.leave_one_out(found)

    for sample in range(5):
        others = [s for s in range(5) if s != sample]
        expected = [oracles.mean_row([head[s] for s in others]) for head in found.tolist()]
        np.testing.assert_allclose(out[:, sample], expected)


@few
@given(SEEDS)
def test_jackknife_error(seed):
    """It is the oracle's, and for a mean it is the mean's standard error."""
    found = kernels_of(seed)
    curved = kernels.effective_tokens(kernels.leave_one_out(found))

    expected = [oracles.jackknife_se(head) for head in curved.tolist()]
    np.testing.assert_allclose(jackknife(curved, axis=-1), expected)

    means = jackknife(kernels.leave_one_out(found).transpose(0, 2, 1), axis=-1)
    np.testing.assert_allclose(means, found.std(axis=1, ddof=1) / math.sqrt(5))


def test_one_query_has_no_error():
    """A single estimate says nothing of its spread."""
    assert np.isnan(jackknife(np.ones((3, 1)), axis=-1)).all()


@pytest.mark.parametrize(
    ("n", "skip", "window", "expected"),
    [(10, 0, None, 0), (10, 4, None, 4), (10, 4, 5, 6), (10, 8, 5, 8), (2, 0, 7, 0), (3, 4, 7, 4)],
)
def test_first_visible(n, skip, window, expected):
    """The later of the skip and the sliding window's first key."""
    assert expected == first_visible(n, skip, window)
