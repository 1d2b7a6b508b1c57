"""The mathematics of extended positions: cases by hand, the plain-loop oracles, and invariances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poskernel_core.analyses.helix import formulas
from poskernel_core.analyses.previous_token import formulas as bands
from poskernel_core.common.specs import BAND
from tests.support import oracles_positions as op
from tests.support.refusals import refused

SEEDS = st.integers(0, 2**32 - 1)
few = settings(max_examples=11)
POS, MODEL, K = 11, 7, 3

# group size, means of the rows 0, 2, 4, 6, 9
GROUPS = [
    (1, [0.0, 2.0, 4.0, 6.0, 9.0]),
    (2, [1.0, 5.0, 9.0]),
    (3, [2.0, 7.5]),
    (4, [3.0, 9.0]),
    (5, [4.2]),
]
# leave_out, start token, first position
FIRST = [(0, False, 0), (0, True, 1), (1, True, 1), (3, True, 3), (7, False, 7)]


def draw(seed, *shape, stretch=True):
    rows = np.random.default_rng(seed).standard_normal(shape)
    return rows * 2.0 ** -np.arange(shape[-1]) if stretch else rows


def same_up_to_sign(found, expected):
    """Each row is the other's, or its negative."""
    assert len(found) == len(expected)
    for row, other in zip(np.array(found), np.array(expected), strict=True):
        np.testing.assert_allclose(row * np.sign(row @ other), other, atol=1e-6)


def test_pca_by_hand():
    """Variances 8 and 2 along axes turned by 45 degrees; a third component has nothing left."""
    rows = np.array([[2.0, 2.0, 0.0], [-2.0, -2.0, 0.0], [1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]])
    components, shares = formulas.principal(rows, 3)
    np.testing.assert_allclose(shares, [0.8, 0.2, 0.0], atol=1e-12)
    same_up_to_sign(components, np.array([[1, 1, 0], [1, -1, 0], [0, 0, 2**0.5]]) / 2**0.5)


def test_more_components_than_dimensions():
    rows = formulas.centred(draw(3, POS, 2))
    components, shares = formulas.principal(rows, 5)
    assert ((5, 2), (5,)) == (components.shape, shares.shape)
    np.testing.assert_allclose(components @ components.T, np.diag([1, 1, 0, 0, 0]), atol=1e-12)
    assert 1 == pytest.approx(shares[:2].sum())
    assert [0, 0, 0] == shares[2:].tolist()


def test_nothing_varies():
    """Equal rows have no variance to share out: 0, not NaN."""
    _, shares = formulas.principal(formulas.centred(np.full((POS, MODEL), 3.7)), 3)
    assert [0, 0, 0] == shares.tolist()


def test_angles_by_hand():
    """Two planes that share a line and are at 30 degrees across it; a line against a plane."""
    a = np.array([[3.0, 0.0, 0.0], [0.0, 2.0, 0.0]]).T
    b = np.array([[3.0, 0.0, 0.0], [0.0, 3**0.5, 1.0]]).T
    np.testing.assert_allclose(formulas.canonical_angles(a, b), [0.0, 30.0], atol=1e-6)
    np.testing.assert_allclose(formulas.canonical_angles(a[:, :1], b[:, 1:]), [90.0], atol=1e-6)


@pytest.mark.parametrize(("size", "expected"), GROUPS)
def test_group_means_by_hand(size, expected):
    """Groups begin at position 0; the last one is smaller where they do not come out even."""
    rows = np.array([0.0, 2.0, 4.0, 6.0, 9.0])[:, None]
    assert expected == pytest.approx(formulas.group_means(rows, size)[:, 0].tolist())


def test_far_share_by_hand():
    """One entry of four is beyond 1.5 rms; exactly twice the rms is not beyond it."""
    rows = np.array([[0.0, 0.0], [0.0, -4.0]])
    assert 0.25 == formulas.far_share(rows, 1.5)
    assert 0 == formulas.far_share(rows, 2.0)


@pytest.mark.parametrize(("leave_out", "start_token", "expected"), FIRST)
def test_first_position(leave_out, start_token, expected):
    assert expected == formulas.first_position(POS, start_token, leave_out)
    with refused("fewer than 4 positions"):
        formulas.first_position(expected + 3, start_token, leave_out)


@few
@given(SEEDS)
def test_contrasts(seed):
    profiles = draw(seed, 2, 3, 2 * BAND + 1, stretch=False)

    found = np.stack(bands.contrasts(profiles), axis=-1)

    for place in np.ndindex(2, 3):
        named = dict(zip(range(-BAND, BAND + 1), profiles[place].tolist(), strict=True))
        np.testing.assert_allclose(found[place], op.contrasts(named), atol=1e-12)
    line = 3.5 - 0.7 * np.arange(-BAND, BAND + 1)[None]
    np.testing.assert_allclose(bands.contrasts(line), np.zeros((2, 1)), atol=1e-12)
    raised = line + np.eye(2 * BAND + 1)[BAND]
    np.testing.assert_allclose(bands.contrasts(raised), [[1.0], [0.0]], atol=1e-12)
