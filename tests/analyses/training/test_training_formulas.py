"""Emergence: by hand, in plain loops, under other clocks, and where there is none."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from poskernel_core.analyses.training.spec import emergence, label_counts

STEPS = np.array([0, 1, 4, 16, 64, 256])


def by_loops(steps, values):
    """Emergence of one head: (step, earliest, latest), NaN where there is none."""
    final = values[-1]
    if math.isnan(final) or final == 0:
        return (math.nan,) * 3
    share = [value / final for value in values]
    place = len(share)
    while place > 0 and share[place - 1] > 0.5:
        place -= 1
    if place == 0 and share[0] > 1:
        return (math.nan,) * 3
    after, before = steps[place], steps[place - 1] if place else 0
    if before == 0 or math.isnan(share[place - 1]):
        return after, before, after
    way = (0.5 - share[place - 1]) / (share[place] - share[place - 1])
    log = math.log(before) + way * (math.log(after) - math.log(before))
    return math.exp(log), before, after


def found_of(steps, values):
    found = emergence(np.array(steps), np.array(values, dtype=float)[:, None])
    return tuple(float(each[0]) for each in found.values())


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 0, 0, 0.2, 0.8, 0.8], (16 * 4 ** (1 / 3), 16, 64)),  # a third of the way to 64
        ([0, 0, 0, 0.4, 0.8, 0.8], (16, 16, 64)),  # just half is not above it
        ([0, 0.9, 0.1, 0.1, 0.9, 0.8], (16 * 4**0.375, 16, 64)),  # it was there before, and went
        ([0, 0.6, 0.7, 0.8, 0.8, 0.8], (1, 0, 1)),  # between step 0, which has no log, and 1
        ([0.5, 0.6, 0.7, 0.8, 0.8, 0.8], (0, 0, 0)),  # from the first checkpoint on
        ([0, 0, 0, -0.2, -0.8, -0.8], (16 * 4 ** (1 / 3), 16, 64)),  # the sign plays no part
        ([0.9, -0.9, 0, 0.5, 0.3, 1.0], (64 * 4 ** (2 / 7), 64, 256)),
        ([0, 0, 0, math.nan, 0.8, 0.8], (64, 16, 64)),  # nothing is known of step 16
        ([0.9, 0.9, 0.7, 0.8, 0.8, 0.8], (math.nan,) * 3),  # it fell
        ([0.9, 0.1, 0.7, 0.8, 0.8, 0.8], (4**0.5, 1, 4)),  # it fell, and came back
        ([1, 1, 1, 1, 1, 0], (math.nan,) * 3),
        ([1, 1, 1, 1, 1, math.nan], (math.nan,) * 3),
    ],
)
def test_by_hand(values, expected):
    np.testing.assert_allclose(found_of(STEPS, values), expected, rtol=1e-12)
    assert (7.0, 0.0, 7.0) == found_of([7], [0.3])


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=9, unique=True).map(sorted), st.data())
def test_plain_loops(steps, data):
    number = st.floats(-1, 1) | st.just(math.nan)
    values = data.draw(st.lists(number, min_size=len(steps), max_size=len(steps)))
    assume(abs(values[-1]) > 1e-6 or values[-1] == 0 or math.isnan(values[-1]))
    expected, found = by_loops(steps, values), found_of(steps, values)

    np.testing.assert_allclose(found, expected, rtol=1e-9)
    if math.isfinite(found[0]):
        assert found[1] * (1 - 1e-9) <= found[0] <= found[2] * (1 + 1e-9)


def test_heads_by_themselves():
    values = np.random.default_rng(3).random((6, 2, 5))
    found = emergence(STEPS, values)
    for layer, head in np.ndindex(2, 5):
        one = found_of(STEPS, values[:, layer, head])
        here = [each[layer, head] for each in found.values()]
        np.testing.assert_array_equal(one, here)


def test_counts():
    codes = np.array([[[0, 2, 2]], [[1, -1, 2]]])
    assert [[1, 0, 2], [0, 1, 1]] == label_counts(codes, 3).tolist()
    assert (2, 0) == label_counts(codes, 0).shape
