"""Attention entropy: by hand, within its bounds, and where it is known.

In plain loops, with its errors: `tests/analyses/test_group_errors.py`.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import poskernel_core as pk
from poskernel_core.statistics.entropy import entropies
from tests.support import builders, oracles
from tests.support.passes import loaded
from tests.support.raw import analyse

TEXTS, CONTEXT = 3, 41
POSITIONS = (0, 7, 36, 40)
SKIPS = (0, 1, 5, 32)


def rows_of(*rows):
    """Rows of probabilities as a pass shows them, [text, head, row, key]."""
    return torch.from_numpy(np.array(rows, dtype=np.float32))[None, None]


def test_by_hand():
    """Half and two quarters: 1.5 ln 2; without the half both quarters alike: ln 2; then one: 0."""
    found = entropies(rows_of([0.5, 0.25, 0.25]), 0)[0, 0, 0]
    np.testing.assert_allclose([1.5 * math.log(2), math.log(2), 0], found[:3], atol=1e-7)
    assert (0 == found[3:]).all()
    late = entropies(rows_of([0.5, 0.25, 0.25]), 2)[0, 0, 0]
    np.testing.assert_allclose([1.5 * math.log(2)] * 3, late[:3], atol=1e-7)


@given(st.lists(st.floats(1e-6, 1), min_size=2, max_size=80), st.sampled_from(SKIPS))
def test_bounds(weights, skip):
    row = np.array(weights, dtype=np.float32) / np.sum(weights, dtype=np.float32)
    found = float(entropies(rows_of(row), 0)[0, 0, 0, skip])
    keys = len(row) - skip
    if keys > 0:
        assert -1e-6 <= found <= math.log(keys) + 1e-6
        assert found == pytest.approx(oracles.entropy(row, skip), abs=1e-5)


def test_heads_that_look_at_one_key_at_all_or_less_and_less(tmp_path):
    back, decay = 3, 6.0
    path = builders.look_back(tmp_path / "look_back", back, CONTEXT, decay)
    ids = builders.random_ids(TEXTS, CONTEXT, seed=7).numpy()
    gathered = pk.run_pass(loaded(path), ids, positions=POSITIONS, gather=("entropy",))
    found = analyse("entropy", gathered, skip=1).values["entropy"]

    for place, n in enumerate(POSITIONS[1:], start=1):
        keys = np.arange(1, n + 1)
        sharp = np.where(keys == n - back, builders.LOOK_BACK_SCORE, 0.0)
        for head, score in enumerate((sharp, 0.0 * keys, -(n - keys) / decay)):
            row = np.exp(score) / np.exp(score).sum()
            assert found[0, head, place] == pytest.approx(oracles.entropy(row, 0), abs=1e-4)
        assert found[1, :, place] == pytest.approx(math.log(n), abs=1e-4)
    assert np.isnan(found[:, :, 0]).all()
    assert (analyse("entropy", gathered, skip=0).values["entropy"][:, :, 0] == 0).all()  # itself
    late = analyse("entropy", gathered, skip=32).values["entropy"]
    assert np.isnan(late[:, :, :2]).all()  # which see none of the keys
    assert late[1, :, 2] == pytest.approx(math.log(36 - 31), abs=1e-4)
