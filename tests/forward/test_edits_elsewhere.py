"""Edits of a pass against edits of the weights."""

import numpy as np
import pytest
import torch

from poskernel_core.forward import interventions
from tests.support import builders
from tests.support import oracles_positions as op
from tests.support.builders.architectures import SHAPES

LEARNED = pytest.mark.parametrize("name", ["gpt2", "gpt_neo", "opt", "attn_only"])
LENGTH = 23
POSITIONS = {"opt": ("model.decoder.embed_positions", 2)}
PROJECTIONS = {
    "gpt2": "transformer.h.{}.attn.c_proj",
    "gpt2_inverse_layer": "transformer.h.{}.attn.c_proj",
    "attn_only": "transformer.h.{}.attn.c_proj",
    "gpt_neo": "transformer.h.{}.attn.attention.out_proj",
    "gpt_neox": "gpt_neox.layers.{}.attention.dense",
    "opt": "model.decoder.layers.{}.self_attn.out_proj",
}


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
@pytest.mark.parametrize("group", [1, 10, 100])
def test_averaged_weight(model_dirs, loaded, name, group):
    ids = builders.random_ids(2, SHAPES[name][2], seed=5)
    expected = logits(with_averaged_weight(model_dirs[name], name, group), ids)

    found = loaded[name].run(
        ids, interventions.AveragedPositions(group, loaded[name].position_matrix())
    )

    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)
    assert group == 1 or (found - loaded[name].run(ids)).abs().max() > 1e-2


@LEARNED
@pytest.mark.parametrize(("length", "group"), [(23, 5), (7, 100)])
def test_averaged_weight_on_a_short_prompt(model_dirs, loaded, name, length, group):
    """`W_pos` does not know how long a prompt is: its last group is averaged whole all the same."""
    ids = builders.random_ids(1, length, seed=5)
    expected = logits(with_averaged_weight(model_dirs[name], name, group), ids)
    found = loaded[name].run(
        ids, interventions.AveragedPositions(group, loaded[name].position_matrix())
    )
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("name", "layer"), [("gpt_neo", 0), *((n, 1) for n in SHAPES)])
def test_ablated_head_is_a_projection_without_its_rows(model_dirs, loaded, ids, name, layer):
    head, model = 2, builders.hf_eager_model(model_dirs[name])
    place = PROJECTIONS.get(name, "model.layers.{}.self_attn.o_proj").format(layer)
    width = loaded[name].geometry.d_head
    columns = slice(head * width, (head + 1) * width)
    weight = model.get_submodule(place).weight
    with torch.no_grad():
        if "c_proj" in place:
            weight[columns] = 0
        else:
            weight[:, columns] = 0

    found = loaded[name].run(ids, interventions.AblatedHeads([(layer, head)]))

    np.testing.assert_allclose(found, logits(model, ids), atol=1e-4, rtol=1e-4)
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
