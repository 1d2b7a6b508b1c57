"""The oracles against cases worked out by hand, and against identities of the definitions."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import oracles

LOG3 = math.log(3)

VISIBLE = [
    # n, skip, window, expected
    (0, 0, None, [0]),
    (3, 0, None, [0, 1, 2, 3]),
    (5, 4, None, [4, 5]),
    (3, 4, None, []),
    (4, 4, None, [4]),
    (6, 0, 1, [6]),
    (6, 0, 3, [4, 5, 6]),
    (6, 5, 3, [5, 6]),
    (2, 0, 7, [0, 1, 2]),
]

# One-dimensional keys 0, ln 3, 0, ln 3 with the query 1: weights 1, 3, 1, 3.
KEYS = [[0.0], [LOG3], [0.0], [LOG3]]

KERNELS = [
    # q, scale, n, skip, window, expected
    (1.0, 1.0, 3, 0, None, [1 / 8, 3 / 8, 1 / 8, 3 / 8]),
    (1.0, 1.0, 2, 0, None, [1 / 5, 3 / 5, 1 / 5, 0.0]),
    (2.0, 0.5, 3, 1, None, [0.0, 3 / 7, 1 / 7, 3 / 7]),
    (1.0, 2.0, 3, 2, None, [0.0, 0.0, 1 / 10, 9 / 10]),
    (-1.0, 1.0, 3, 0, 2, [0.0, 0.0, 3 / 4, 1 / 4]),
    (0.0, 1.0, 3, 1, 2, [0.0, 0.0, 1 / 2, 1 / 2]),
    (1.0, 1.0, 0, 0, None, [1.0, 0.0, 0.0, 0.0]),
]

ETC = [([1.0], 1), ([0.0, 0.5, 0.5], 2), ([0.2] * 5, 5), ([0.75, 0.25], 1.6)]

# row, n, half-mass distance
HALF_MASS = [
    ([0.0, 0.0, 1.0], 2, 0.5),
    ([1.0, 0.0, 0.0], 2, 2.5),
    ([0.25, 0.25, 0.25, 0.25], 3, 2),
    ([0.25, 0.375, 0.25, 0.125, 0.0], 3, 2 + 1 / 3),
    ([0.0, 0.5, 0.5, 0.0], 2, 1),
]


def uniform(first: int, n: int, length: int) -> list[float]:
    """Equal mass on the positions from `first` to `n`."""
    return [1 / (n - first + 1) if first <= i <= n else 0.0 for i in range(length)]


def mixed(n: int, near: float) -> list[float]:
    """A share `near` spread over the last ten positions, the rest on one distant position."""
    row = [0.0] * (n + 1)
    for k in range(10):
        row[n - k] = near / 10
    row[0] += 1 - near
    return row


KINDS = [
    # row, n, skip, window, expected
    (uniform(0, 9, 10), 9, 0, None, oracles.LOCAL),  # ten tokens are all there is
    (uniform(0, 19, 20), 19, 0, None, oracles.LOCAL),  # exactly half lies in the last ten
    (uniform(0, 20, 21), 20, 0, None, oracles.UNIFORM),
    (uniform(4, 40, 41), 40, 4, None, oracles.UNIFORM),
    (uniform(20, 59, 60), 59, 0, 40, oracles.UNIFORM),  # all that a window of 40 shows
    ([1.0] + [0.0] * 40, 40, 0, None, oracles.SLOW_DECAY),
    (mixed(40, 0.5), 40, 0, None, oracles.LOCAL),
    (mixed(40, 0.4), 40, 0, None, oracles.SLOW_DECAY),
]


@pytest.mark.parametrize(("n", "skip", "window", "expected"), VISIBLE)
def test_visible(n, skip, window, expected):
    assert expected == oracles.visible(n, skip, window)


@pytest.mark.parametrize(("q", "scale", "n", "skip", "window", "expected"), KERNELS)
def test_kernel_row(q, scale, n, skip, window, expected):
    actual = oracles.kernel_row([q], KEYS, scale, n, skip, window)
    assert expected == pytest.approx(actual)


def test_attention_row_sees_the_first_positions():
    actual = oracles.attention_row([1.0], KEYS, 1.0, 3)
    assert [1 / 8, 3 / 8, 1 / 8, 3 / 8] == pytest.approx(actual)


def test_attention_row_in_a_window():
    actual = oracles.attention_row([1.0], KEYS, 1.0, 3, window=3)
    assert [0.0, 3 / 7, 1 / 7, 3 / 7] == pytest.approx(actual)


def test_mean_kernel_is_the_mean_of_kernels():
    """The average is taken over kernels, not over queries."""
    actual = oracles.mean_kernel([[1.0], [-1.0]], KEYS, 1.0, 1, 0)
    assert [0.5, 0.5, 0.0, 0.0] == pytest.approx(actual)
    actual = oracles.mean_kernel([[1.0], [0.0]], KEYS, 1.0, 1, 0)
    assert [3 / 8, 5 / 8, 0.0, 0.0] == pytest.approx(actual)


@pytest.mark.parametrize(("row", "expected"), ETC)
def test_etc(row, expected):
    assert expected == pytest.approx(oracles.etc(row))


def test_local_mass_counts_the_own_position():
    """Two tokens are the offsets 0 and 1, and positions before the text hold nothing."""
    row = [0.1, 0.2, 0.3, 0.4, 0.0]
    assert pytest.approx(0.7) == oracles.local_mass(row, 3, 2)
    assert pytest.approx(1.0) == oracles.local_mass(row, 3)


@pytest.mark.parametrize(("row", "n", "expected"), HALF_MASS)
def test_half_mass_distance(row, n, expected):
    assert expected == pytest.approx(oracles.half_mass_distance(row, n))


def test_half_mass_distance_needs_a_whole_row():
    with pytest.raises(ValueError, match="less than half"):
        oracles.half_mass_distance([0.2, 0.2, 0.6], 1)


@pytest.mark.parametrize(("row", "n", "skip", "window", "expected"), KINDS)
def test_kind(row, n, skip, window, expected):
    assert expected == oracles.kind(row, n, skip, window)


VECTORS = st.lists(st.floats(-3, 3), min_size=2, max_size=2)


@given(
    st.lists(VECTORS, min_size=5, max_size=5), st.lists(VECTORS, min_size=5, max_size=5), VECTORS
)
def test_attention_is_the_kernel_times_the_content(mean_keys, contents, q):
    scale, n = 0.7, 3
    keys = [
        [m + c for m, c in zip(*pair, strict=True)]
        for pair in zip(mean_keys, contents, strict=True)
    ]
    kernel = oracles.kernel_row(q, mean_keys, scale, n, 0)
    weights = [math.exp(scale * oracles.dot(q, content)) for content in contents]
    denominator = sum(k * w for k, w in zip(kernel, weights, strict=True))

    expected = [k * w / denominator for k, w in zip(kernel, weights, strict=True)]

    assert expected == pytest.approx(oracles.attention_row(q, keys, scale, n), rel=1e-9, abs=1e-12)


@given(st.lists(st.floats(-5, 5), min_size=11, max_size=11), st.integers(2, 10), st.integers(0, 2))
def test_etc_lies_between_one_and_the_number_of_visible_positions(scores, n, skip):
    row = oracles.kernel_row([1.0], [[s] for s in scores], 1.0, n, skip)
    assert 1 - 1e-9 <= oracles.etc(row) <= n - skip + 1 + 1e-9
