"""The mathematics of extended positions, by hand."""

import numpy as np
import pytest

from poskernel_core.analyses.helix import formulas
from tests.support.refusals import refused

POS, MODEL = 11, 7

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


def test_more_components_than_dimensions():
    rows = formulas.centred(np.random.default_rng(3).normal(size=(POS, 2)))
    components, shares = formulas.principal(rows, 5)
    assert ((5, 2), (5,)) == (components.shape, shares.shape)
    np.testing.assert_allclose(components @ components.T, np.diag([1, 1, 0, 0, 0]), atol=1e-12)
    assert 1 == pytest.approx(shares[:2].sum())
    assert [0, 0, 0] == shares[2:].tolist()


def test_nothing_varies():
    """Equal rows have no variance to share out: 0, not NaN."""
    _, shares = formulas.principal(formulas.centred(np.full((POS, MODEL), 3.7)), 3)
    assert [0, 0, 0] == shares.tolist()


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
