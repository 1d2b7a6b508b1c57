"""Corrected numbers and their intervals: by hand, by loops over pseudo-values, by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.common.jackknife import (
    Estimate,
    bias,
    cross_fit,
    difference,
    estimate,
    interval,
    jackknife,
    signs,
)

ANY = (-math.inf, math.inf)
NULL = 1 / math.sqrt(1 - 2 / math.pi) - 1  # of |x| for normal x, against x


@pytest.mark.parametrize(
    ("kind", "bounds", "expected"),
    [
        ("smooth", ANY, (0.4, 0.2, 0.6)),
        ("plain", ANY, (0.5, 0.3, 0.7)),
        ("smooth", (0.45, 0.55), (0.45, 0.45, 0.55)),
        ("null", (0, 1), (0.4, 0.2, 0.7)),
        ("range", (0, 1), (0.5, 0.3, 0.5)),
        ("distance", (0, 1), (0.4, 0.3 - 0.2 * (1 + 0.4 * NULL), 0.7)),
        (
            "share",
            (0, 1),
            (0.4, 1 / (1 + 1.5 * math.exp(0.8)), 1 / (1 + 1.5 / math.exp(0.8))),
        ),
        ("share", (0.5, 1), (0.5, 0.5, 1 / (1 + math.exp(-0.8)))),
        ("log", ANY, tuple(0.5 * math.exp(0.02 - 0.2 + at) for at in (0, -0.4, 0.4))),
    ],
)
def test_one_number(kind, bounds, expected):
    """0.5 of all texts, too large by 0.1, with a standard error of 0.1 and intervals of two."""
    half, tenth = np.array(0.5), np.array(0.1)
    found = estimate(kind, half, tenth, tenth, 2.0, bounds)
    assert expected == pytest.approx(tuple(map(float, found)))


def test_a_distance_that_is_too_small_is_not_raised():
    """Nor does its interval begin above it, where nothing is cross-fit."""
    numbers = map(np.array, (0.5, -0.1, 0.1))
    assert (0.5, 0.3, 0.7) == pytest.approx(
        tuple(map(float, estimate("distance", *numbers, 2.0, (0, 1))))
    )


@pytest.mark.parametrize("kind", ["smooth", "log", "share", "null", "distance", "plain"])
def test_what_is_unknown(kind):
    """An unknown bias corrects nothing, an unknown error leaves no interval, no number is none."""
    number, nan = np.array([0.5, math.nan]), np.array([math.nan, math.nan])
    value, low, high = estimate(kind, number, nan, nan, 2.0, (0, 1))
    assert 0.5 == value[0]
    assert np.isnan([*low, *high, value[1]]).all()


@given(st.lists(st.floats(0.1, 10), min_size=3, max_size=11))
def test_a_smooth_number_is_the_mean_of_its_pseudo_values(groups):
    """For any number of a mean, here its square."""
    count = len(groups)
    whole = (sum(groups) / count) ** 2
    without = [((sum(groups) - each) / (count - 1)) ** 2 for each in groups]
    pseudo = [count * whole - (count - 1) * each for each in without]
    given_ = np.array(whole), bias(np.array(whole), np.array(without)), jackknife(np.array(without))
    value, low, high = estimate("smooth", *given_, 2.0, ANY)
    middle = sum(pseudo) / count
    error = math.sqrt(sum((each - middle) ** 2 for each in pseudo) / count / (count - 1))
    assert (middle, middle - 2 * error, middle + 2 * error) == pytest.approx(
        (float(value), float(low), float(high))
    )


@given(st.floats(1e-6, 1 - 1e-6), st.floats(1e-9, 2), st.floats(-0.2, 0.2))
def test_ends_of_a_share(share, error, excess):
    """Within 0 and 1, on both sides of the value; turned round for the rest of the whole."""
    here, there = (
        estimate("share", *map(np.array, each), 2.0, (0, 1))
        for each in ((share, excess, error), (1 - share, -excess, error))
    )
    assert 0 <= here.low <= here.value <= here.high <= 1
    turned = [1 - there.value, 1 - there.high, 1 - there.low]
    assert turned == pytest.approx([float(each) for each in here], abs=1e-6)


def test_a_share_that_hardly_varies_has_the_ends_of_any_number():
    numbers = np.array(0.3), np.array(1e-6), np.array(1e-5)
    share, smooth = (estimate(kind, *numbers, 2.0, (0, 1)) for kind in ("share", "smooth"))
    np.testing.assert_allclose(share, smooth, atol=1e-9)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_share_of_nothing_or_all_has_no_odds(value):
    numbers = np.array(value), np.array(0.0), np.array(0.1)
    share, smooth = (estimate(kind, *numbers, 2.0, (0, 1)) for kind in ("share", "smooth"))
    assert share == smooth


@pytest.mark.parametrize(
    ("kind", "plain", "draw", "truth"),
    [
        ("share", 91.0, lambda random, shape: random.beta(0.05, 1, shape), 0.05 / 1.05),
        ("share", 93.5, lambda random, shape: random.beta(0.1, 1, shape), 0.1 / 1.1),
        ("log", 90.0, lambda random, shape: random.lognormal(0, 1.25, shape), math.exp(0.78125)),
    ],
)
def test_intervals_of_skewed_numbers(kind, plain, draw, truth):
    """Means of ten groups of six windows: their own scale holds the truth more often."""
    windows = draw(np.random.default_rng(7), (6000, 10, 6)).mean(axis=-1)
    whole = windows.mean(axis=1)
    without = (windows.sum(axis=1, keepdims=True) - windows) / 9
    numbers = whole, bias(whole, without, axis=1), jackknife(without, axis=1)
    held = {}
    for name in (kind, "smooth"):
        _, low, high = estimate(name, *numbers, interval(10), (0, math.inf))
        held[name] = 100 * np.mean((low <= truth) & (truth <= high))
    assert held["smooth"] < plain < held[kind] - 1


def test_cross_fit_by_loops():
    random = np.random.default_rng(3)
    groups, rows = random.normal(size=(7, 5)), 11
    shapes = random.normal(size=(5, rows))
    whole = np.tanh(groups.mean(axis=0) @ shapes)  # not linear in the groups
    without = [np.tanh((groups.sum(axis=0) - each) @ shapes / 6) for each in groups]
    found = []
    for each in without:
        total = 0.0
        for i in range(rows):
            pseudo = 7 * whole[i] - 6 * each[i]
            total += 0.5 * math.copysign(1.0, each[i]) * pseudo
        found.append(total)
    distances = np.array([0.5 * np.abs(each).sum() for each in without])
    assert sum(found) / 7 == pytest.approx(
        float(cross_fit(whole, [*map(signs, without)], distances))
    )


@pytest.mark.parametrize("apart", [0.0, 0.1, 1.0])
def test_intervals_of_distances_hold_the_truth(apart):
    """Of rows whose true distance is 0 or not, with a value nearer to it than the plug-in."""
    random = np.random.default_rng(5)
    count, samples, size = 10, 4000, 13
    truth = apart * random.normal(size=size)
    means = truth + 0.3 * random.normal(size=(count, samples, size))
    whole = means.mean(axis=0)
    without = (means.sum(axis=0) - means) / (count - 1)

    plug_in, each = (0.5 * np.abs(rows).sum(axis=-1) for rows in (whole, without))
    error, width = jackknife(each), interval(count)
    fitted = cross_fit(whole, [*map(signs, without)], each)
    found = estimate("distance", plug_in, (plug_in - fitted) / 2, error, width, (0, math.inf))

    right = 0.5 * np.abs(truth).sum()
    held = np.mean((found.low <= right) & (right <= found.high))
    assert 0.935 <= held <= 0.995
    assert abs(found.value.mean() - right) <= max(0.01, 0.6 * abs(plug_in.mean() - right))
    assert (found.value <= plug_in).all()


def test_differences_of_two_numbers():
    """Each end has its own distance; of symmetrical ones the errors add up as squares."""
    one, other = ((5.0, 4.7, 5.4), (3.0, 2.7, 3.4))
    found = difference(*(Estimate(*map(np.array, each)) for each in (one, other)))
    assert (2.0, 1.5, 2.5) == pytest.approx(tuple(map(float, found)))
