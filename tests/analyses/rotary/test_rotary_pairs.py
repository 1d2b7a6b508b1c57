"""Rotations as they are read from running models, and the pairs before them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from transformers import (
    AttentionInterface,
    AutoModelForCausalLM,
    CohereConfig,
    GlmConfig,
    SmolLM3Config,
)

import poskernel_core as pk
from poskernel_core.common.errors import NotInModel, UnsupportedModel
from poskernel_core.forward import hooks
from poskernel_core.forward.edits import Edit
from poskernel_core.forward.observers import Batch
from poskernel_core.forward.rotation import Rotation, read_rotation
from poskernel_core.passes.prepare import sizes_for
from poskernel_core.statistics.rotary import RotaryPairs
from tests.support import builders
from tests.support.builders.rotary import SCALINGS, scaled
from tests.support.oracles_rotary import turned_of
from tests.support.passes import loaded
from tests.support.raw import analyse
from tests.support.refusals import refused
from tests.support.truth import Recorder

TEXTS, CONTEXT = 3, 41
PLAIN = ("llama", "gpt_neox")
KINDS = (*PLAIN, *SCALINGS)
SIZES = {
    "vocab_size": 31, "hidden_size": 24, "num_attention_heads": 3, "num_key_value_heads": 3,
    "intermediate_size": 17, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def models(model_dirs, tmp_path_factory):
    root = tmp_path_factory.mktemp("scaled")
    return {name: model_dirs[name] for name in PLAIN} | {
        name: scaled(name)(root / name) for name in SCALINGS
    }


class Turns(Recorder):
    """Keeps rotations too."""

    wants_rotations = True

    def __init__(self) -> None:
        super().__init__()
        self.rotations: list[Rotation] = []

    def rotation(self, layer, rotation, batch) -> None:
        assert len(self.rotations) == layer == len(self.calls)
        self.rotations.append(rotation)


@pytest.mark.parametrize("name", KINDS)
def test_turned_back(models, name):
    ids = builders.random_ids(TEXTS, CONTEXT, seed=3)
    seen = Turns()
    loaded(models[name]).run(ids, observers=[seen], keep=0)
    truth = turned_of(models[name], ids.numpy())

    for layer, (call, rotation) in enumerate(zip(seen.calls, seen.rotations, strict=True)):
        speed, factor = rotation.speeds()
        np.testing.assert_allclose(speed, truth.speed, rtol=1e-4)
        np.testing.assert_allclose(factor, truth.factor, rtol=1e-6)
        u, v = truth.queries[layer], truth.keys[layer]
        heads = call.q.shape[1] // call.k.shape[1]
        for x, pairs in ((call.q, u), (call.k, v[:, ::heads])):
            one, two = rotation.turned_back(x)
            np.testing.assert_allclose(one.numpy() + 1j * two.numpy(), pairs, atol=2e-5)
        rest = [part.astype(float) for part in truth.rest[layer]]
        for text, head, n, i in ((0, 1, 40, 3), (2, 4, 17, 17), (1, 0, 9, 0)):
            turn = np.exp(1j * truth.speed * (n - i))
            both = (u[text, head, n] * np.conj(v[text, head, i]) * turn).real.sum()
            passed = rest[0][text, head, n] @ rest[1][text, head, i]
            ours = call.q[text, head, n].double() @ call.k[text, head // heads, i].double()
            assert float(ours) == pytest.approx(truth.factor**2 * both + passed, abs=1e-4)


def test_sums_of_many_texts_are_as_exact_as_of_one(models):
    """Queries and keys of a thousand, of 512 texts: a sum in float32 is off by 0.1."""
    model, seen, many = loaded(models["llama"]), Turns(), 512
    ids = builders.random_ids(many, CONTEXT, seed=3)
    model.run(ids[:1], observers=[seen], until=0)
    sizes = sizes_for(model.geometry, ids.numpy(), (CONTEXT - 1,), 10, True)
    torch.manual_seed(7)
    shapes = ((many, *getattr(seen.calls[0], name).shape[1:]) for name in "qk")
    q, k = (1000 + torch.randn(shape) for shape in shapes)

    def sums(texts):
        pairs = RotaryPairs(sizes, torch.device("cpu"))
        for first in range(0, many, texts):
            part = slice(first, first + texts)
            batch = Batch(ids[part], range(first, first + texts))
            pairs.rotation(0, seen.rotations[0], batch)
            pairs.attention(replace(seen.calls[0], q=q[part], k=k[part]), batch)
        return pairs.sums

    expected = sums(1)
    for name, found in sums(many).items():
        np.testing.assert_allclose(found[0], expected[name][0], rtol=1e-11, atol=1e-3)


def test_learned_positions_are_refused(model_dirs):
    ids = builders.random_ids(2, 7, seed=8).numpy()
    gathered = pk.run_pass(loaded(model_dirs["gpt2"]), ids, gather=("rotary",))
    assert np.isnan(gathered.arrays["pair_speed"]).all()
    with refused("with learned positions", NotInModel):
        analyse("rotary-spectrum", gathered)


@pytest.mark.parametrize(
    ("config", "pairs"),
    [
        (CohereConfig(**SIZES, num_hidden_layers=1), 4),
        (GlmConfig(**SIZES, num_hidden_layers=1, head_dim=8, partial_rotary_factor=0.5), 2),
        (SmolLM3Config(**SIZES, num_hidden_layers=2, no_rope_layers=[1, 0]), 4),
    ],
    ids=["neighbours", "neighbours of a part", "a layer without"],
)
def test_layouts_of_other_architectures(config, pairs):
    model = AutoModelForCausalLM.from_config(config).eval()
    model.set_attn_implementation(hooks.IMPLEMENTATION)
    x = torch.randn(2, 11, 24, generator=torch.Generator().manual_seed(1))
    turns = model.base_model.rotary_emb(x, torch.arange(11)[None])
    for layer, block in enumerate(model.base_model.layers):
        attention = block.self_attn
        vars(attention)["poskernel"] = kept = (object(), layer)
        with torch.inference_mode():
            rotation = read_rotation(attention, layer, x, {"position_embeddings": turns})
            q = attention.q_proj(x).view(2, 11, 3, 8).transpose(1, 2)
        assert kept is vars(attention)["poskernel"]
        assert len(rotation.first) == (0 if layer else pairs)
        if layer == 0:
            speed, factor = rotation.speeds()
            at = 1j * torch.arange(11)[:, None] * torch.from_numpy(speed)
            one, two = (q[..., part].double() for part in (rotation.first, rotation.second))
            both = torch.complex(one, two) * at.exp()
            turned = rotation.turned(both.real, both.imag, q)
            back = rotation.turned(*rotation.turned_back(turned), turned)
            torch.testing.assert_close(back, q, atol=1e-5, rtol=0)
            assert factor == pytest.approx(1)
            assert (np.diff(speed) < 0).all()


class Odd(nn.Module):
    """An attention that turns nothing by the angles it is handed, but by its own."""

    def forward(self, hidden_states, position_embeddings, attention_mask):
        q = hidden_states.view(1, -1, 2, 12).transpose(1, 2)
        q = q * torch.arange(1, q.shape[2] + 1)[:, None]
        return AttentionInterface()[hooks.IMPLEMENTATION](self, q, q, q, attention_mask)


def test_an_unknown_turn_is_refused():
    attention, turn = Odd(), torch.ones(1, 9, 12)
    vars(attention)["poskernel"] = kept = (object(), 3)
    with refused("layer 3 in a way", UnsupportedModel):
        read_rotation(attention, 3, torch.ones(1, 9, 24), {"position_embeddings": (turn, turn)})
    assert kept is vars(attention)["poskernel"]
    assert read_rotation(attention, 3, torch.ones(1, 9, 24), {}) is None

    angle = torch.arange(9.0)[:, None] ** 2
    none = torch.zeros(0, dtype=torch.long)
    with refused("steadily", UnsupportedModel):
        Rotation(none, none, angle.cos()[None], angle.sin()[None]).speeds()


def test_nothing_is_read_unless_it_is_wanted(model_dirs, monkeypatch):
    ids, model = builders.random_ids(1, 7, seed=9), loaded(model_dirs["llama"])
    monkeypatch.setattr(hooks, "read_rotation", None)
    assert torch.isfinite(model.run(ids, Edit())).all()
