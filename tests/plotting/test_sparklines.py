"""Kernels as small curves: by hand, against a plain loop, and no larger than promised."""

import base64
import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.plotting.sparklines import MISSING, as_blocks, compact_curves, heights_of


def test_by_hand():
    """Three keys from key 1 on, the last first: offsets 0, 1, 2 each in a bin of its own."""
    kernel = np.array([[[9, 0.1, 0.4, 0.2, 9], [9, 0, 0, 0, 9], [np.nan] * 5]])
    found = compact_curves(kernel, query=3, first=1)
    codes = np.frombuffer(base64.b64decode(found["codes"]), np.uint8).reshape(3, 3)
    assert ([0, 1, 2], 2, [[0.4, None, None]]) == (found["starts"], found["last"], found["most"])
    assert [[127, 254, 64], [MISSING] * 3, [MISSING] * 3] == codes.tolist()
    np.testing.assert_allclose(
        heights_of(found)[0], [[0.5, 1, 0.252], [np.nan] * 3, [np.nan] * 3], atol=1e-3
    )
    assert "▁█▅▂" == as_blocks(np.array([0.0, 1.0, 0.55, 0.1]))


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
    shown = heights_of(found)[0, 0] * max(means)
    np.testing.assert_allclose(means, shown, atol=max(means) / 254)


def test_size():
    kernels = np.random.default_rng(0).dirichlet(np.ones(1024), size=(64, 64))
    found = compact_curves(kernels, query=1023, first=4)
    assert 24 < len(found["starts"]) <= 32
    assert len(json.dumps(found)) < 250_000
