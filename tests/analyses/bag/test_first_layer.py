"""Layer 0 taken apart: put together again, it is what plain transformers computes."""

import json
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from poskernel_core.forward import loading
from poskernel_core.forward.blocks import Norm
from poskernel_core.forward.first_layer import read_first_layer, see_first_layer
from poskernel_core.models import catalog
from tests.support import builders
from tests.support.builders.contextual import some_windows
from tests.support.oracles_first_layer import inside
from tests.support.refusals import refused

READ = [name for name in builders.ARCHITECTURES if name not in ("attn_only", "gpt_neox")]
READ = [*READ, "serial_neox", "large_epsilon"]
HOOKS = ("_forward_hooks", "_forward_pre_hooks")


@pytest.fixture(scope="module")
def paths(model_dirs, tmp_path_factory):
    root = tmp_path_factory.mktemp("first layer")
    large = shutil.copytree(model_dirs["llama"], root / "epsilon")
    config = json.loads((large / "config.json").read_text()) | {"rms_norm_eps": 1.5}
    (large / "config.json").write_text(json.dumps(config))
    return model_dirs | {
        "large_epsilon": large,
        "serial_neox": builders.gpt_neox(root / "serial", parallel=False),
        "post_norm": builders.opt(root / "post-norm", do_layer_norm_before=False),
    }


def exact(norm, x):
    return norm.linear(x) * norm.scale(x)[..., None] + norm.bias


def loaded(path):
    return loading.load(catalog.locate(str(path)), "cpu")


@pytest.mark.parametrize("name", READ)
def test_put_together_again(paths, name):
    windows, model = some_windows(3, 23, start=False), loaded(paths[name])
    layer, truth = read_first_layer(model), inside(paths[name], windows)
    heads, _, d = layer.w_v.shape

    stream = layer.embedding[torch.from_numpy(windows)] + layer.positions[:23]
    between, values = stream + layer.b_o, layer.values(stream)
    for head in range(heads):
        z = torch.from_numpy(truth.pattern[:, head]).float() @ values[head]
        expected = truth.heads[..., head * d : (head + 1) * d]
        np.testing.assert_allclose(z, expected, atol=2e-5)
        between = between + z @ layer.w_o[head]
    activation = exact(layer.norm2, between) @ layer.w_in + layer.b_in

    np.testing.assert_allclose(stream, truth.stream, atol=1e-6)
    np.testing.assert_allclose(between, truth.between, atol=5e-5)
    np.testing.assert_allclose(activation, truth.activation, atol=2e-4)
    np.testing.assert_allclose(layer.w_out, truth.w_out, atol=1e-5)
    assert np.abs(truth.activation).max() > 1

    seen = see_first_layer(model, torch.from_numpy(windows))
    assert (3, 23, model.geometry.n_heads, model.geometry.d_head) == seen.heads.shape
    for part in ("stream", "heads", "between", "activation"):
        found = getattr(seen, part).reshape(3, 23, -1)
        np.testing.assert_allclose(found, getattr(truth, part), atol=2e-4, err_msg=part)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("attn_only", "no neurons that read the normed stream behind its attention"),
        ("gpt_neox", "no neurons that read the normed stream behind its attention"),
        ("post_norm", "heads and MLP are not all that is added"),
    ],
)
def test_refused(paths, name, words):
    model = loaded(paths[name])
    for ask in (
        read_first_layer,
        lambda it: see_first_layer(it, torch.ones(1, 3, dtype=torch.long)),
    ):
        with refused(words):
            ask(model)


@pytest.mark.parametrize(
    ("family", "refusal"),
    [
        ("starcoder2", ""),
        ("stablelm", ""),
        ("nemotron", ""),
        ("gemma", "the stream is not the sum of the embeddings"),  # which are scaled
        ("bloom", "the stream is not the sum of the embeddings"),  # which are normed
        ("granite", "the stream is not the sum of the embeddings"),
        ("phi", "no neurons that read the normed stream behind its attention"),
        ("gemma2", "no neurons that read the normed stream behind its attention"),
        ("mixtral", "no neurons that read the normed stream behind its attention"),
    ],
)
def test_other_architectures(model_dirs, family, refusal):
    """They need no table: the matrices give what the modules put out, or the model is refused."""
    model, ids = loaded(model_dirs[family]), torch.arange(7)[None] * 7 % 200 + 3
    if refusal:
        with refused(refusal):
            read_first_layer(model)
        return
    layer, seen = read_first_layer(model), see_first_layer(model, ids)
    between = seen.stream + torch.einsum("tphd,hdm->tpm", seen.heads, layer.w_o) + layer.b_o
    activation = exact(layer.norm2, seen.between) @ layer.w_in + layer.b_in
    np.testing.assert_allclose(layer.embedding[ids] + layer.positions[:7], seen.stream, atol=1e-6)
    np.testing.assert_allclose(between, seen.between, atol=5e-5)
    np.testing.assert_allclose(activation, seen.activation, atol=2e-4)


def hooks_of(model):
    return [len(vars(m)[kind]) for m in model.module.modules() for kind in HOOKS]


def test_hooks_are_removed(paths):
    model = loaded(paths["gpt2"])
    before = hooks_of(model)

    see_first_layer(model, torch.ones(2, 5, dtype=torch.long))
    assert before == hooks_of(model)
    with pytest.raises(IndexError):
        see_first_layer(model, torch.full((2, 5), builders.VOCABULARY))
    assert before == hooks_of(model)
    assert (1, 5, builders.VOCABULARY) == model.run(torch.ones(1, 5, dtype=torch.long)).shape


def test_only_layer_0_is_run(paths):
    model, ran = loaded(paths["gpt2"]), []
    see_first_layer(model, torch.ones(2, 5, dtype=torch.long))  # which finds the layers' parts
    model.block(0).mlp.c_proj.register_forward_hook(lambda *_: ran.append(0))
    model.block(1).register_forward_hook(lambda *_: ran.append(1))
    see_first_layer(model, torch.ones(2, 5, dtype=torch.long))
    assert [] == ran


@torch.no_grad()
@given(
    st.lists(st.floats(-3, 3), min_size=5, max_size=5),
    st.lists(st.floats(-3, 3), min_size=5, max_size=5),
    st.floats(-2, 2),
    st.sampled_from([1e-5, 0.1]),
)
def test_norms(left, right, factor, eps):
    generator = torch.Generator().manual_seed(7)
    gain, bias = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    x, y = torch.tensor([left, right], dtype=torch.float64)
    for module in (nn.LayerNorm(5, eps), nn.RMSNorm(5, eps)):
        module.double().weight.data = gain
        if isinstance(module, nn.LayerNorm):
            module.bias.data = bias
        norm = Norm.of(module, torch.zeros_like(x))
        np.testing.assert_allclose(exact(norm, x), module(x).detach(), atol=1e-9)
        whole = norm.linear(factor * x + y)
        np.testing.assert_allclose(whole, factor * norm.linear(x) + norm.linear(y), atol=1e-9)
