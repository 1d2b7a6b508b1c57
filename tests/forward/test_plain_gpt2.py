"""The second GPT-2 is transformers' GPT-2; its edits are held against ours in test_edits."""

import numpy as np
import pytest
import torch

from tests.support import builders
from tests.support.plain_gpt2 import run


@pytest.mark.parametrize("name", ["gpt2", "gpt2_inverse_layer", "attn_only"])
def test_agrees_with_transformers(model_dirs, name):
    model = builders.hf_eager_model(model_dirs[name]).double()
    ids = builders.random_ids(1, model.config.n_positions, seed=1)
    with torch.inference_mode():
        truth = model(ids, output_attentions=True, output_hidden_states=True, use_cache=False)

    actual = run(model_dirs[name], ids[0].tolist())

    np.testing.assert_allclose(actual.logits, truth.logits[0], atol=1e-5)
    np.testing.assert_allclose(actual.patterns, torch.cat(truth.attentions), atol=1e-5)
    np.testing.assert_allclose(actual.streams, torch.cat(truth.hidden_states[:-1]), atol=1e-5)


@pytest.mark.parametrize("build", [builders.helix, builders.dark_head, builders.aggregator])
def test_agrees_on_constructed_models(tmp_path, build):
    """Also where the norms' weights are far from 1."""
    path, ids = build(tmp_path), builders.random_ids(1, 31)
    attentions = builders.hf_eager_attentions(path, ids)
    actual = run(path, ids[0].tolist())
    np.testing.assert_allclose(actual.patterns, torch.cat(attentions), atol=2e-4)
