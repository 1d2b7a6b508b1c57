"""Edits take effect in every architecture, as edits of the weights do, and end with their run."""

import numpy as np
import pytest
import torch

from poskernel_core.forward import interventions
from poskernel_core.forward.edits import Edit
from tests.support import builders
from tests.support import oracles_positions as op
from tests.support.truth import Recorder

EACH = pytest.mark.parametrize(
    ("name", "layer"), [("gpt_neo", 0), ("gpt_neo", 1), ("gpt2", 1), ("mistral", 1), ("qwen3", 1)]
)
STAGES = pytest.mark.parametrize("stage", ["scores", "pattern"])

LENGTH = 23


@pytest.fixture(scope="module")
def ids():
    return builders.random_ids(2, LENGTH, seed=3)


@STAGES
@EACH
def test_attention_edits_take_effect(loaded, ids, name, stage, layer):
    before, after = Recorder(patterns=True), Recorder(patterns=True)
    edit = interventions.PredecessorKnockout(7, (layer,), stage)
    clean = loaded[name].run(ids, observers=[before])
    found = loaded[name].run(ids, edit, [after])

    np.testing.assert_allclose(found[:, :7], clean[:, :7], atol=1e-4)
    assert (found[:, 7] - clean[:, 7]).abs().amax(dim=-1).min() > 1e-3
    cut, whole = after.patterns()[layer], before.patterns()[layer]
    for n in range(1, LENGTH):
        rest = whole[:, :, n].clone()
        if n % 7 == 0:
            rest[..., n - 1] = 0
            rest = rest / rest.sum(-1, keepdim=True) if stage == "scores" else rest
        np.testing.assert_allclose(cut[:, :, n], rest, atol=1e-5)


@EACH
def test_a_head_without_attention_is_silent(loaded, ids, name, layer):
    class Blank(Edit):
        def pattern(self, at, pattern):
            pattern = pattern.clone()
            pattern[:, 2] *= 0 if at == layer else 1
            return pattern

    blank, clean = loaded[name].run(ids, Blank()), loaded[name].run(ids)
    silent = loaded[name].run(ids, interventions.AblatedHeads([(layer, 2)]))

    np.testing.assert_allclose(blank, silent, atol=1e-5)
    assert (silent - clean).abs().max() > 1e-2


def test_an_edit_ends_with_its_run(loaded, ids):
    class Broken(Edit):
        def pattern(self, layer, pattern):
            raise ZeroDivisionError

    clean = loaded["gpt2"].run(ids)
    with pytest.raises(ZeroDivisionError):
        loaded["gpt2"].run(ids, Broken())

    assert torch.equal(clean, loaded["gpt2"].run(ids))


def logits(model, ids):
    with torch.inference_mode():
        return model(ids, use_cache=False).logits


@pytest.mark.parametrize(("length", "group"), [(37, 10), (23, 5), (7, 100)])
def test_averaged_weight(model_dirs, loaded, length, group):
    """`W_pos` does not know how long a prompt is: its last group is averaged whole all the same."""
    ids, plain = builders.random_ids(2, length, seed=5), builders.hf_eager_model(model_dirs["opt"])
    weight = plain.model.decoder.embed_positions.weight  # OPT's rows begin at 2
    with torch.no_grad():
        weight[2:] = torch.tensor(op.averaged_positions(weight[2:].double().tolist(), group))

    edit = interventions.AveragedPositions(group, loaded["opt"].position_matrix())
    found = loaded["opt"].run(ids, edit)

    np.testing.assert_allclose(found, logits(plain, ids), atol=1e-4, rtol=1e-4)
    assert (found - loaded["opt"].run(ids)).abs().max() > 1e-2


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
