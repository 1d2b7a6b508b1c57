"""Which keys a query sees, and which key head it reads: against loops, for arrays and tensors."""

import numpy as np
import pytest
import torch

from poskernel_core.common.attention import first_visible, only_visible, repeat_kv

LENGTH = 9


def sees(query, key, window):
    return key <= query and (window is None or query - key < window)


@pytest.mark.parametrize("window", [None, 1, 4, 20])
def test_only_visible(window):
    values = np.random.default_rng(3).normal(size=(2, LENGTH, LENGTH))
    found = only_visible(values, window)

    for head in range(2):
        for n in range(LENGTH):
            seen = [i for i in range(LENGTH) if sees(n, i, window)]
            assert seen == np.flatnonzero(~np.isnan(found[head, n])).tolist()
            assert (values[head, n, seen] == found[head, n, seen]).all()
            assert first_visible(n, 0, window) == seen[0]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_heads_that_share_keys(kind, axis):
    found = repeat_kv(kind([[1, 2], [3, 4]]), 6, axis)
    rows = [[1, 2]] * 3 + [[3, 4]] * 3
    assert (rows if axis == 0 else [[1, 1, 1, 2, 2, 2], [3, 3, 3, 4, 4, 4]]) == found.tolist()
