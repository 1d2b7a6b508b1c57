"""Edits of the forward pass: against a second GPT-2 in plain loops, and in every architecture."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import poskernel_core as pk
from poskernel_core.forward import interventions
from poskernel_core.forward.edits import Edit
from tests.support import builders, plain_gpt2
from tests.support import oracles_positions as op
from tests.support.builders.families import EVERY_MODEL
from tests.support.oracles_position_sources import slopes
from tests.support.plain_gpt2 import Edits
from tests.support.truth import Recorder

ALL = pytest.mark.parametrize("name", builders.ARCHITECTURES)
STAGES = pytest.mark.parametrize("stage", ["scores", "pattern"])
LEARNED = ("gpt2", "gpt2_inverse_layer", "gpt_neo", "opt", "attn_only")
LENGTH = 23
MOVES = {5: [2], 11: [11, 3, 0], 22: [21]}


@pytest.fixture(scope="module")
def ids():
    return builders.random_ids(2, LENGTH, seed=3)


def rows_of(layer_width=35, length=LENGTH):
    """Made-up extended positional embeddings, `[pos, model]`."""
    return np.random.default_rng(5).standard_normal((length, layer_width)).astype(np.float32)


@pytest.fixture(params=["gpt2", "attn_only"])
def agree(request, model_dirs, loaded, ids):
    """Check that an edit and its plain counterpart give the same logits and patterns, not clean."""
    model, path = loaded[request.param], model_dirs[request.param]

    def check(edit, length=LENGTH, **edits):
        recorder, texts = Recorder(patterns=True), ids[:, :length]
        found = model.run(texts, edit(model) if callable(edit) else edit, [recorder])
        for text, tokens in enumerate(texts.tolist()):
            truth = plain_gpt2.run(path, tokens, Edits(**edits))
            np.testing.assert_allclose(found[text], truth.logits, atol=1e-4)
            patterns = [pattern[text] for pattern in recorder.patterns()]
            np.testing.assert_allclose(torch.stack(patterns), truth.patterns, atol=1e-5)
        assert (found - model.run(texts)).abs().max() > 1e-2

    return check


@pytest.mark.parametrize("group", [2, 5, 23])
def test_averaged_positions(agree, group):
    agree(
        lambda model: interventions.AveragedPositions(group, model.position_matrix()),
        LENGTH - LENGTH % group,
        positions=lambda rows: np.array(op.averaged_positions(rows.tolist(), group)),
    )


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("group", [4, 10])
def test_averaged_stream(agree, layer, group):
    rows = rows_of()
    step = np.array(op.averaged_positions(rows.tolist(), group)) - rows
    edit = interventions.AveragedStream(layer, group, torch.from_numpy(rows))
    agree(edit, stream=lambda at, stream: stream + step if at == layer else stream)


@pytest.mark.parametrize("layer", [0, 1])
def test_blocks_that_are_called_by_keyword(loaded, ids, monkeypatch, layer):
    """As some classes of transformers call theirs."""
    model = loaded["llama"]
    edit = interventions.AveragedStream(layer, 4, torch.from_numpy(rows_of(60)))

    def seen():
        recorder = Recorder()
        found = [model.run(ids), model.run(ids, edit, [recorder])]
        stream = recorder.residuals[layer]
        return [*found, *recorder.residuals, model.run(ids, stream=(layer, stream))]

    def by_keyword(block, x, **more):
        return nn.Module.__call__(block, hidden_states=x, **more)

    expected = seen()
    monkeypatch.setattr(type(model.block(0)), "__call__", by_keyword)
    torch.testing.assert_close(seen(), expected, rtol=0, atol=0)
    assert (expected[0] - expected[1]).abs().max() > 1e-2


@STAGES
@pytest.mark.parametrize("every", [1, 5])
def test_blind_predecessor(agree, stage, every):
    layers = (0, 1)

    def cut(layer, head, matrix):
        matrix = matrix.copy()
        for n in range(1, LENGTH):
            if n % every == 0 and layer in layers:
                matrix[n, n - 1] = -math.inf if stage == "scores" else 0.0
        return matrix

    agree(interventions.PredecessorKnockout(every, layers, stage), **{stage: cut})


@STAGES
@pytest.mark.parametrize(("scope", "scale"), [("head", 1.0), ("head", 2.0), ("layer", -0.5)])
def test_moved_attention(agree, stage, scope, scale):
    where, strength = (1, 3), 3.0

    def move(layer, head, matrix):
        matrix = matrix.copy()
        for n, keys in MOVES.items() if (layer, head) == where else ():
            top = max(matrix[n])
            for i in range(LENGTH):
                if stage == "pattern":
                    matrix[n, i] = 1 / len(keys) if i in keys else 0.0
                elif i in keys:
                    matrix[n, i] = top + strength
        return matrix

    def scaled(at, *place):
        return lambda *given: (
            scale * given[-1] if at == scope and given[:-1] == place else given[-1]
        )

    agree(
        interventions.MovedAttention(*where, MOVES, stage, strength, scale, scope),
        head_output=scaled("head", *where),
        layer_output=scaled("layer", where[0]),
        **{stage: move},
    )


def test_ablated_heads(agree):
    cells = [(0, 1), (0, 4), (1, 3)]
    agree(
        interventions.AblatedHeads(cells),
        head_output=lambda layer, head, rows: 0 * rows if (layer, head) in cells else rows,
    )


@pytest.mark.parametrize("which", ["tokens", "positions"])
def test_removed_embeddings(agree, which):
    agree(interventions.RemovedEmbeddings(which), **{which: np.zeros_like})


def idle(name, model):
    width = {"llama": 60, "mistral": 70, "qwen2": 48, "qwen3": 46, "gpt_neox": 60}.get(name, 35)
    still = [
        interventions.AblatedHeads(()),
        interventions.MovedAttention(1, 2, {}, "pattern", 10.0, 1.0, "head"),
        interventions.MovedAttention(0, 3, {}, "scores", 10.0, 1.0, "layer"),
        interventions.PredecessorKnockout(LENGTH, (0, 1), "pattern"),
        interventions.PredecessorKnockout(1, (), "scores"),
        interventions.AveragedStream(1, 1, torch.from_numpy(rows_of(width))),
        interventions.AveragedStream(7, 10, torch.from_numpy(rows_of(width))),
    ]
    if name not in LEARNED:
        return still
    return [*still, interventions.AveragedPositions(1, model.position_matrix())]


@ALL
def test_idle_edits_change_nothing(loaded, ids, name):
    """Bit for bit: groups of 1, a factor of 1, no heads, no rows, no layers; and twice the same."""
    model = loaded[name]
    clean = model.run(ids, Edit())
    torch.testing.assert_close(clean, model.run(ids), rtol=1e-4, atol=5e-5)
    assert torch.equal(clean, model.run(ids, Edit()))
    for edit in idle(name, model):
        assert torch.equal(clean, model.run(ids, edit)), edit


EACH = pytest.mark.parametrize(
    ("name", "layer"), [("gpt_neo", 0), ("gpt_neo", 1), ("gpt2", 1), ("mistral", 1), ("qwen3", 1)]
)


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


def test_without_tokens_only_alibi_is_left(tmp_path, ids):
    """All streams are alike then: each weight is that of its distance, in every layer."""
    model = pk.load(EVERY_MODEL["bloom"].build(tmp_path / "bloom"), device="cpu")
    patterns = {}
    for which in ("tokens", "positions"):
        seen = Recorder(patterns=True)
        model.run(ids, interventions.RemovedEmbeddings(which), [seen])
        patterns[which] = np.stack([block.pattern.numpy()[0] for block in seen.blocks])
    back = np.subtract.outer(np.arange(LENGTH), np.arange(LENGTH))
    for head, slope in enumerate(slopes(model.geometry.n_heads)):
        weights = np.where(back >= 0, np.exp(-slope * back), 0)
        weights /= weights.sum(axis=1, keepdims=True)
        for layer in range(model.geometry.n_layers):
            np.testing.assert_allclose(patterns["tokens"][layer, head], weights, atol=1e-5)
            assert np.abs(patterns["positions"][layer, head] - weights).max() > 0.01
