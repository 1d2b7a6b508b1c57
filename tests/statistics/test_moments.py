"""Means and errors of samples that stream by: against NumPy, and against known variances."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.common.jackknife import bias, interval, jackknife
from poskernel_core.statistics.moments import Groups, Moments
from tests.support import oracles

numbers = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))


def moments_of(batches):
    moments = Moments()
    for batch in batches:
        moments.add(torch.as_tensor(np.asarray(batch)))
    return moments


def groups_of(samples, sizes=None):
    groups, first = Groups(), 0
    for size in sizes or [len(samples)]:
        some = range(first, first + size)
        groups.add(torch.as_tensor(samples[first : first + size]), some)
        first += size
    return groups


def test_by_hand():
    """The samples 1, 2, 4, 5 have mean 3 and variance 10/3, thus error sqrt(10/12)."""
    moments = moments_of([[1.0, 2.0], [4.0], [5.0]])
    assert 3 == moments.mean
    assert math.sqrt(10 / 12) == pytest.approx(float(moments.error))
    assert 4 == moments.count


@given(
    st.lists(st.tuples(numbers, numbers, numbers), min_size=2, max_size=23),
    st.lists(st.integers(1, 7), min_size=1, max_size=23),
)
def test_cuts_do_not_matter(samples, sizes):
    single = np.array(samples, np.float32)
    array, batches, rest = single.astype(float), [], [*single]
    for size in sizes:
        batches, rest = [*batches, rest[:size]], rest[size:]
    batches = [batch for batch in [*batches, rest] if batch]

    moments = moments_of(batches)

    np.testing.assert_allclose(moments.mean, array.mean(axis=0), atol=1e-9)
    expected = array.std(axis=0, ddof=1) / math.sqrt(len(array))
    np.testing.assert_allclose(moments.error, expected, atol=1e-9)


def test_nan_stays_in_its_place():
    moments = moments_of([[[1.0, math.nan]], [[3.0, math.nan], [5.0, math.nan]]])
    assert 3 == moments.mean[0]
    assert np.isnan([moments.mean[1], moments.error[1]]).all()
    assert math.sqrt(4 / 3) == pytest.approx(moments.error[0])


@pytest.mark.parametrize("cut", [1, 2, 499])
def test_a_mean_far_from_zero(cut):
    """A spread of 1e-3 about a mean of 1e9 keeps its digits."""
    spread = np.random.default_rng(5).integers(-8, 9, size=997) * 2.0**-13
    samples = 1e9 + spread
    moments = moments_of([samples[i : i + cut] for i in range(0, len(samples), cut)])
    assert spread.std(ddof=1) / math.sqrt(997) == pytest.approx(float(moments.error), rel=1e-4)
    assert 1e9 + spread.mean() == pytest.approx(float(moments.mean), abs=1e-6)


def test_too_few_samples():
    moments = moments_of([[[2.0, 3.0]]])
    assert [2, 3] == moments.mean.tolist()
    assert np.isnan(moments.error).all()
    assert np.isnan(jackknife(np.ones((1, 3)))).all()


def test_jackknife_is_that_of_repeated_experiments():
    """A fit's jackknife errors are its scatter: the logarithm of a mean of 50 samples."""
    samples = np.random.default_rng(11).exponential(size=(50, 3000))
    groups = groups_of(samples)
    errors = jackknife(np.log(groups.without_each()))
    scatter = np.log(groups.mean).std()
    assert 1 / math.sqrt(50) == pytest.approx(scatter, rel=0.05)
    assert scatter == pytest.approx(math.sqrt(np.mean(errors**2)), rel=0.05)


@given(st.lists(st.integers(1, 11), min_size=1, max_size=7), st.integers(0, 99))
def test_groups(sizes, seed):
    """Sample `i` is in group `i mod 10`, however samples are cut: replicates by plain loops."""
    samples = np.random.default_rng(seed).normal(size=(sum(sizes) + 1, 2, 3))
    count = len(samples)

    groups = groups_of(samples, [*sizes, 1])

    np.testing.assert_allclose(groups.mean, samples.mean(axis=0), atol=1e-12)
    expected = [
        np.mean([samples[i] for i in range(count) if i % 10 != group], axis=0)
        for group in range(min(10, count))
    ]
    np.testing.assert_allclose(groups.without_each(), expected, atol=1e-12)
    square = oracles.jackknife(count, lambda kept: oracles.mean([samples[i][1, 2] for i in kept]))
    assert square == pytest.approx(jackknife(groups.without_each())[1, 2])


def test_bias_by_hand():
    """Of the mean's square: 1, 2 and 6 have 9; without each 16, 12.25 and 2.25, 61/6 on average."""
    left_out = np.array([16, 12.25, 2.25])
    assert 2 * (61 / 6 - 9) == pytest.approx(float(bias(np.array(9.0), left_out)))
    assert np.isnan(bias(np.ones(3), np.ones((1, 3)))).all()


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=13))
def test_bias_is_what_a_variance_lacks(samples):
    array = np.array(samples)
    left = [np.delete(array, place, axis=0) for place in range(len(array))]
    without = np.stack([each.var(axis=0) for each in left], axis=1)
    means = np.stack([each.mean(axis=0) for each in left], axis=1)

    found = array.var(axis=0) - bias(array.var(axis=0), without, axis=1)

    np.testing.assert_allclose(found, array.var(axis=0, ddof=1), rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(bias(array.mean(axis=0), means, axis=1), 0, atol=1e-8)


def test_intervals_at_the_ends():
    """Fewer than two groups have none; that of many is the normal distribution's."""
    assert [math.inf, math.inf] == [interval(0), interval(1)]
    assert 1.96 == pytest.approx(interval(100_000), abs=5e-4)
