"""The tiny models are such that a mistake shows in them."""

import pytest
import torch

from poskernel_core.models import catalog
from tests.support import builders, oracles
from tests.support.builders.architectures import WINDOWS


@pytest.mark.parametrize("name", builders.ARCHITECTURES)
def test_attention_is_visible_uneven_and_knows_positions(model_dirs, name):
    """A mistake in queries, keys, scale, mask or positions would move these patterns."""
    told, windows = catalog.locate(str(model_dirs[name])).geometry, WINDOWS.get(name, [None] * 3)
    heads, context = told.n_heads, told.n_ctx
    patterns = builders.hf_eager_attentions(model_dirs[name], builders.random_ids(2, context))
    equal = builders.hf_eager_attentions(model_dirs[name], torch.full((1, context), 17))[0]

    assert [(2, heads, context, context)] * told.n_layers == [tuple(p.shape) for p in patterns]
    for pattern, window in zip(patterns, windows, strict=True):
        expected = torch.zeros(context, context, dtype=torch.bool)
        for n in range(context):
            expected[n, oracles.visible(n, 0, window)] = True
        assert torch.equal(expected.expand_as(pattern), pattern > 0)
        counts = [oracles.etc(row) for row in pattern[0, :, -1].tolist()]
        assert all(1.05 < count < 0.95 * expected[-1].sum() for count in counts), counts
    seen = len(oracles.visible(context - 1, 0, windows[0]))
    assert all(oracles.etc(row) < 0.97 * seen for row in equal[0, :, -1].tolist())
