"""The transformer_lens bridge shows the hooked module's patterns, over the same tensors."""

from __future__ import annotations

import pytest
import torch

from poskernel_core.forward import loading
from poskernel_core.forward.bridge import open_bridge
from poskernel_core.models import catalog
from tests.support.builders import ARCHITECTURES, hf_eager_attentions, random_ids


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_patterns(model_dirs, name):
    model = loading.load(catalog.locate(str(model_dirs[name])), "cpu")
    bridge = open_bridge(model)
    ids = random_ids(2, 23)
    expected = hf_eager_attentions(model_dirs[name], ids)
    with torch.inference_mode():
        logits, cache = bridge.run_with_cache(ids)
    torch.testing.assert_close(logits, model.run(ids), atol=1e-4, rtol=1e-4)
    for layer, pattern in enumerate(expected):
        got = cache[f"blocks.{layer}.attn.hook_pattern"]
        torch.testing.assert_close(got, pattern, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_shared_tensors(model_dirs):
    model = loading.load(catalog.locate(str(model_dirs["gpt2"])), "cpu")
    ours = {p.data_ptr() for p in model.module.parameters()}
    bridge = open_bridge(model)
    assert bridge.blocks[0].mlp.original_component.c_fc.weight.data_ptr() in ours
