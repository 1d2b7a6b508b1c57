"""Edits of a pass against edits of the weights."""

import numpy as np
import pytest
import torch

from poskernel_core.forward import interventions
from tests.support import builders
from tests.support import oracles_positions as op

LEARNED = pytest.mark.parametrize("name", ["gpt2", "opt"])
LENGTH = 23
POSITIONS = {"opt": ("model.decoder.embed_positions", 2)}


@pytest.fixture(scope="module")
def ids():
    return builders.random_ids(2, LENGTH, seed=3)


def with_averaged_weight(path, name, group):
    """Plain transformers, the rows of its `W_pos` averaged in groups, by plain loops."""
    model = builders.hf_eager_model(path)
    place, first = POSITIONS.get(name, ("transformer.wpe", 0))
    weight = model.get_submodule(place).weight
    with torch.no_grad():
        rows = weight[first:].double().tolist()
        weight[first:] = torch.tensor(op.averaged_positions(rows, group))
    return model


def logits(model, ids):
    with torch.inference_mode():
        return model(ids, use_cache=False).logits


@LEARNED
@pytest.mark.parametrize(("length", "group"), [(37, 10), (23, 5), (7, 100)])
def test_averaged_weight(model_dirs, loaded, name, length, group):
    """`W_pos` does not know how long a prompt is: its last group is averaged whole all the same."""
    ids = builders.random_ids(2, length, seed=5)
    expected = logits(with_averaged_weight(model_dirs[name], name, group), ids)

    found = loaded[name].run(
        ids, interventions.AveragedPositions(group, loaded[name].position_matrix())
    )

    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)
    assert (found - loaded[name].run(ids)).abs().max() > 1e-2


@pytest.mark.parametrize("which", ["tokens", "positions"])
def test_removed_embeddings_are_zero_weights(model_dirs, loaded, ids, which):
    model = builders.hf_eager_model(model_dirs["opt"])
    decoder, unembed = model.model.decoder, model.lm_head.weight.detach().clone()
    with torch.no_grad():
        part = decoder.embed_tokens if which == "tokens" else decoder.embed_positions
        part.weight.zero_()
        model.lm_head.weight = torch.nn.Parameter(unembed)

    found = loaded["opt"].run(ids, interventions.RemovedEmbeddings(which))

    np.testing.assert_allclose(found, logits(model, ids), atol=1e-4, rtol=1e-4)
