"""Kernels as small curves: by hand, against a plain loop, and no larger than promised."""

import base64
import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.plotting.sparklines import MISSING, as_blocks, compact_curves, heights_of


def codes(found, layers, heads):
    raw = np.frombuffer(base64.b64decode(found["codes"]), dtype=np.uint8)
    return raw.reshape(layers, heads, -1)


def test_by_hand():
    """Three keys from key 1 on, the last first: offsets 0, 1, 2 each in a bin of its own."""
    kernel = np.array([[[9, 0.1, 0.4, 0.2, 9], [9, 0, 0, 0, 9]]])
    found = compact_curves(kernel, query=3, first=1)

    assert [0, 1, 2] == found["starts"]
    assert 2 == found["last"]
    assert [[0.4, None]] == found["most"]
    assert [127, 254, 64] == codes(found, 1, 2)[0, 0].tolist()
    assert [MISSING] * 3 == codes(found, 1, 2)[0, 1].tolist()


def test_heads_without_kernels():
    kernel = np.full((2, 3, 7), 1 / 7)
    kernel[1] = np.nan
    found = compact_curves(kernel, query=6, first=0)

    assert [[0.143] * 3, [None] * 3] == found["most"]
    assert (codes(found, 2, 3)[0] == 254).all()


@given(st.integers(1, 1200), st.integers(0, 7))
def test_bins(length, seed):
    kernel = np.random.default_rng(seed).dirichlet(np.ones(length))[None, None]
    found = compact_curves(kernel, query=length - 1, first=0)
    starts = [*found["starts"], length]

    assert 0 == starts[0] < len(starts) - 1 <= 32
    assert starts == sorted(set(starts))
    turned = kernel[0, 0, ::-1].tolist()
    means = [sum(turned[low:high]) / (high - low) for low, high in pairwise(starts)]
    assert max(means) == pytest.approx(found["most"][0][0], rel=1e-2)
    shown = codes(found, 1, 1)[0, 0] / 254 * max(means)
    np.testing.assert_allclose(means, shown, atol=max(means) / 254)


def test_size():
    kernels = np.random.default_rng(0).dirichlet(np.ones(1024), size=(64, 64))
    found = compact_curves(kernels, query=1023, first=4)

    assert 24 < len(found["starts"]) <= 32
    assert len(json.dumps(found)) < 250_000


def test_heights_come_back():
    kernels = np.random.default_rng(0).random((2, 3, 41))
    kernels[1, 2] = np.nan
    curves = compact_curves(kernels, 37, 4)
    heights = heights_of(curves)

    assert (2, 3, len(curves["starts"])) == heights.shape
    assert np.isnan(heights[1, 2]).all()
    heights[1, 2] = 1
    np.testing.assert_array_equal(heights.max(axis=-1), 1)
    assert (heights >= 0).all()


def test_blocks():
    assert "▁█▅▂" == as_blocks(np.array([0.0, 1.0, 0.55, 0.1]))
