"""Attention sinks: by hand, rows that add up, and which heads have one.

In plain loops, with their errors: `tests/analyses/test_group_errors.py`.
"""

import numpy as np
import torch

import poskernel_core as pk
from poskernel_core.forward.attention import PatternBlock
from poskernel_core.forward.observers import Batch
from poskernel_core.statistics import STATISTICS, Sizes
from tests.support import builders
from tests.support.passes import loaded
from tests.support.raw import analyse

TEXTS, CONTEXT = 3, 41


def gather(path, ids, **more):
    return pk.run_pass(loaded(path), ids, gather=("sinks",), **more)


def test_by_hand(model_dirs):
    """Rows (1), (1/2, 1/2), (1/4, 1/4, 1/4) of which a quarter goes to no key, in two blocks.

    Key 0: (1 + 1/2 + 1/4) / 3; key 1: (1/2 + 1/4) / 2; key 2: 1/4; no key: (0 + 0 + 1/4) / 3.
    """
    sizes = Sizes(loaded(model_dirs["attn_only"]).geometry, 3, 1, (2,), 1, False)
    seen = STATISTICS["sinks"](sizes, torch.device("cpu"))
    batch = Batch(torch.zeros(1, 3, dtype=torch.long), range(1))
    heads = sizes.geometry.n_heads
    for first, rows in ((0, [[1, 0], [0.5, 0.5]]), (2, [[0.25, 0.25, 0.25]])):
        block = torch.tensor(rows)[None, None].expand(1, heads, -1, -1)
        seen.pattern(PatternBlock(0, first, 0, block), batch)
    found = seen.finish([{name: total.numpy() for name, total in seen.sums.items()}], sizes, 1)

    np.testing.assert_allclose(found["alpha"][0, 0], [1.75 / 3, 0.375, 0.25], atol=1e-7)
    np.testing.assert_allclose(found["learned"][0], 0.25 / 3, atol=1e-7)


def test_rows_add_up(model_dirs):
    context = 5
    ids = builders.random_ids(TEXTS, context, seed=6).numpy()
    gathered = gather(model_dirs["gpt2"], ids)
    alpha = gathered.arrays["alpha"]
    assert context == alpha.shape[-1]
    queries = context - np.arange(context)
    np.testing.assert_allclose((alpha * queries).sum(axis=-1), context, rtol=1e-5)
    limit = float(np.median(alpha[..., 0]))
    sinks = analyse("sinks", gathered, threshold=limit).values
    np.testing.assert_allclose(sinks["sink"], alpha[..., 0])
    assert 0 < sinks["sink_rate"] == (alpha[..., 0] > limit).mean() < 1
    np.testing.assert_allclose(sinks["learned_sink"], 0, atol=1e-6)
