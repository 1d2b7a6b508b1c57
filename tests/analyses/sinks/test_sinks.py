"""Attention sinks: by hand, in plain loops, rows that add up, and heads whose sinks are known."""

import numpy as np
import pytest
import torch

import poskernel_core as pk
from poskernel_core.forward.attention import PatternBlock
from poskernel_core.forward.observers import Batch
from poskernel_core.statistics import STATISTICS, Sizes
from tests.support import builders, oracles
from tests.support.passes import loaded
from tests.support.raw import analyse
from tests.support.truth import truth_of

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


@pytest.mark.parametrize("name", ["gpt2", "mistral"])
def test_plain_transformers(model_dirs, name):
    ids = builders.random_ids(TEXTS, CONTEXT, seed=5).numpy()
    result = analyse("sinks", gather(model_dirs[name], ids, batch=2), threshold=0.1)

    for layer, pattern in enumerate(truth_of(model_dirs[name], ids).attentions):
        for head in range(pattern.shape[1]):
            for key in range(8):
                one = [
                    oracles.mean([float(text[head, n, key]) for n in range(key, CONTEXT)])
                    for text in pattern
                ]
                found = result.values["alpha"][layer, head, key]
                off = result.errors["alpha"][layer, head, key]
                np.testing.assert_allclose(
                    [found, off], [oracles.mean(one), oracles.standard_error(one)], atol=1e-6
                )
    np.testing.assert_array_equal(result.values["sink"], result.values["alpha"][..., 0])
    assert result.values["sink_rate"] == (result.values["sink"] > 0.1).mean()
    np.testing.assert_allclose(result.values["learned_sink"], 0, atol=1e-6)


def test_rows_add_up(model_dirs):
    context = 5
    ids = builders.random_ids(TEXTS, context, seed=6).numpy()
    alpha = gather(model_dirs["gpt2"], ids).arrays["alpha"]
    assert context == alpha.shape[-1]
    queries = context - np.arange(context)
    np.testing.assert_allclose((alpha * queries).sum(axis=-1), context, rtol=1e-5)
