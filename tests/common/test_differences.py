"""Means of groups as 16-bit differences: what comes back of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

from poskernel_core.common.differences import SHORT, average, of_groups

NUMBERS = st.floats(-1000, 1000, width=32) | st.floats(-(2.0**-20), 2.0**-20, width=32)


def kept(means):
    """The arrays that are kept of one layer's means ``[group, ...]``."""
    return average("m", means)


@given(
    st.tuples(st.integers(2, 11), st.integers(1, 5), st.sampled_from([1, 15, 16, 37])).flatmap(
        lambda shape: hn.arrays(np.float32, shape, elements=NUMBERS)
    ),
    st.data(),
)
def test_the_mean_of_some_groups(means, data):
    count = len(means)
    some = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=count)))
    arrays, wide = kept(means), means.astype(float)
    short = means.shape[-1] < SHORT

    found = of_groups(arrays, "m", some)

    exact = np.array([wide[group] for group in some]).mean(axis=0)
    added = min(len(some), count - len(some))
    step = arrays["m.step"][0].astype(float)
    single = 3e-7 * np.abs(wide).max() + np.finfo(np.float32).tiny  # below it, a step is rounded
    assert (np.abs(found - exact) <= step * added / 2 / len(some) * 1.001 + single).all()
    rows = wide - wide.mean(axis=0)
    spread = np.abs(rows).max(axis=0) if short else np.abs(rows).max(axis=(0, 2))[:, None]
    np.testing.assert_allclose(step, spread / 32767, rtol=1e-5, atol=1e-12)
    assert (np.float32, np.int16, np.float32) == tuple(array.dtype for array in arrays.values())
    assert np.float32 == found.dtype


@pytest.mark.parametrize("length", [5, 53])
def test_what_is_no_number(length):
    means = np.random.default_rng(0).normal(size=(7, 2, length)).astype(np.float32)
    holed, clean = means.copy(), means.copy()
    holed[:, 1, 2], clean[:, 1, 2] = np.nan, 0
    found, expected = (of_groups(kept(each), "m", (0, 5)) for each in (holed, clean))

    assert [[1, 2]] == np.argwhere(np.isnan(found)).tolist()
    found[1, 2] = expected[1, 2] = 0
    np.testing.assert_array_equal(expected, found)


def test_one_group_has_no_differences():
    arrays = kept(np.ones((1, 3, 5), np.float32))
    assert ["m"] == list(arrays)
    np.testing.assert_array_equal(np.ones((3, 5)), of_groups(arrays, "m", (0,)))


def test_single_numbers():
    arrays = kept(np.array([[1.0], [2.0], [6.0]], np.float32))
    one = {name: array[..., 0] for name, array in arrays.items()}
    found = of_groups(one, "m", (0, 1))
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, 1.5, rtol=1e-4)


def test_the_groups_may_be_the_second_axis():
    means = np.random.default_rng(1).normal(size=(3, 7, 2, 17)).astype(np.float32)
    found = average("m", means, axis=1)
    assert [(3, 2, 17), (3, 7, 2, 17), (3, 1, 2, 1)] == [array.shape for array in found.values()]
    for layer in range(3):
        for name, array in kept(means[layer]).items():
            np.testing.assert_array_equal(array, found[name][layer])
