"""Components of the stream: they add up, and each is what its part of the model wrote."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.forward import blocks, components, loading
from poskernel_core.forward.components import read_components, read_parts
from poskernel_core.models import catalog
from tests.support import builders
from tests.support.builders import hub_form
from tests.support.builders.families import tried
from tests.support.truth import Recorder

TEXTS, LENGTH = 2, 31
REFUSED = {
    "olmo": "may be clipped",
    "mpt": "may be clipped",
    "deepseek2": "compressed keys",
    "deepseek3": "compressed keys",
}
SCHEMES = (
    "attn_only", "opt", "llama", "gpt_neox", "bloom", "qwen3", "olmo2", "gptj", "falcon-rotary",
    "stablelm", "granite", "qwen3-next", "llama-yarn", "gpt-bigcode",
)  # fmt: skip
"""Further schemes of position, norms and blocks, besides those that every test tries."""
TRIED = [name for name in dict.fromkeys((*tried(), *SCHEMES)) if name not in (*REFUSED, "llama4")]

# what writes: the MLP's module, the output projection, the norm behind attention, the factor
MLP = {
    "gpt2": ("transformer.h.{}.mlp", "transformer.h.{}.attn.c_proj"),
    "gptj": ("transformer.h.{}.mlp", "transformer.h.{}.attn.out_proj"),
    "falcon-rotary": (
        "transformer.h.{}.mlp.dense_4h_to_h", "transformer.h.{}.self_attention.dense",
    ),
    "bloom": ("transformer.h.{}.mlp.dense_4h_to_h", "transformer.h.{}.self_attention.dense"),
    "opt": ("model.decoder.layers.{}.fc2", "model.decoder.layers.{}.self_attn.out_proj"),
    "gpt_neox": ("gpt_neox.layers.{}.mlp", "gpt_neox.layers.{}.attention.dense"),
    "llama": ("model.layers.{}.mlp", "model.layers.{}.self_attn.o_proj"),
    "granite": ("model.layers.{}.mlp", "model.layers.{}.self_attn.o_proj"),
    "gemma2": ("model.layers.{}.post_feedforward_layernorm", "model.layers.{}.self_attn.o_proj"),
    "olmo2": ("model.layers.{}.post_feedforward_layernorm", "model.layers.{}.self_attn.o_proj"),
}  # fmt: skip
BEHIND = {"gemma2": (1.0, 1e-6), "olmo2": (0.0, 1e-5)}
"""Models with a norm behind attention: what it adds to its weights, and its epsilon."""


@pytest.fixture(scope="module")
def ids():
    return builders.random_ids(TEXTS, LENGTH)


def readings(model, ids):
    return [read_components(model, ids, layer) for layer in model.geometry.with_heads]


@pytest.mark.parametrize("name", TRIED)
def test_add_up(loaded, model_dirs, ids, name):
    """To the stream of plain transformers, and to the queries and keys of the attention call."""
    model = loaded[name]
    plain = builders.hf_eager_model(model_dirs[name])
    if name == "falcon-alibi":  # its eager attention adds the bias twice
        plain = AutoModelForCausalLM.from_pretrained(
            model_dirs[name], attn_implementation="sdpa"
        ).eval()
    with torch.inference_mode():
        streams = plain(ids, output_hidden_states=True, use_cache=False).hidden_states
    for reading in readings(model, ids):
        stream = sum(part.written().double().sum(dim=0) for part in reading.parts)
        close(stream, streams[reading.layer])
        assert len(set(reading.names)) == len(reading.names)
        for side, real in (("query", reading.call.q), ("key", reading.call.k)):
            for head in range(model.geometry.n_heads):
                found = reading.projected(side, head)
                assert len(found) == len(reading.names)
                own = head * real.shape[1] // model.geometry.n_heads
                close(found.double().sum(dim=0), real[:, own])


def close(found, expected, within=1e-5):
    assert (found - expected).abs().max() <= within * expected.abs().max()


@pytest.mark.parametrize("name", MLP)
def test_writers(loaded, model_dirs, ids, name):
    """Each head and MLP wrote what its own modules put out, in plain loops."""
    model, plain = loaded[name], builders.hf_eager_model(model_dirs[name])
    kept = {}
    for at in (0, 1):
        for kind, place in zip(("mlp", "out"), MLP[name], strict=True):
            plain.get_submodule(place.format(at)).register_forward_hook(keeper(kept, kind, at))
    with torch.inference_mode():
        plain(ids, use_cache=False)
    reading = read_components(model, ids, 2)
    written = {
        title: each
        for part in reading.parts
        for title, each in zip(part.names, part.written(), strict=True)
    }
    factor = {"granite": 0.7}.get(name, 1.0)
    biases = 0.0
    for at in (0, 1):
        close(written[f"MLP {at}"], factor * kept["mlp", at][1].reshape(TEXTS, LENGTH, -1))
        z, put_out = kept["out", at]
        module = plain.get_submodule(MLP[name][1].format(at))
        weight = module.weight.detach() if name == "gpt2" else module.weight.detach().T
        heads = model.geometry.n_heads
        d = weight.shape[0] // heads
        gain, size = torch.ones(weight.shape[1]), torch.ones(TEXTS, LENGTH, 1)
        if name in BEHIND:
            norm = plain.get_submodule(f"model.layers.{at}.post_attention_layernorm")
            more, eps = BEHIND[name]
            gain = norm.weight.detach() + more
            size = (put_out.square().mean(dim=-1, keepdim=True) + eps).sqrt()
        for head in range(heads):
            mine = slice(head * d, (head + 1) * d)
            expected = factor * gain * (z[..., mine] @ weight[mine]) / size
            close(written[f"L{at}H{head}"], expected)
        if module.bias is not None:
            biases = biases + module.bias.detach()
    if isinstance(biases, float):
        assert "biases" not in written
    else:
        close(written["biases"], biases.expand(TEXTS, LENGTH, -1))


def keeper(kept, kind, at):
    def keep(_module, args, out):
        first = out if isinstance(out, torch.Tensor) else out[0]
        kept[kind, at] = args[0].clone(), first.clone()  # Falcon adds in place

    return keep


def test_embeddings(loaded, ids):
    for name, tokens, positions in (
        ("gpt2", "transformer.wte", "transformer.wpe"),
        ("opt", "model.decoder.embed_tokens", "model.decoder.embed_positions"),
    ):
        model = loaded[name]
        first = 2 if name == "opt" else 0
        rows = model.module.get_submodule(positions).weight[first : first + LENGTH].detach()
        embedding, position = read_components(model, ids, 0).parts
        assert (embedding.names, position.names) == (("embedding",), ("position",))
        words = model.module.get_submodule(tokens).weight.detach()[ids]
        close(embedding.rows[0], words)
        close(position.rows[0], rows.expand(TEXTS, -1, -1))


def test_names(loaded, ids):
    """Names tell layers, heads and MLPs apart; layers without heads are one component."""
    names = {
        name: read_components(loaded[name], ids, 1).names for name in ("gpt2", "attn_only", "jamba")
    }
    heads = [f"L0H{head}" for head in range(5)]
    rest = ["biases", "constant"]
    assert names["gpt2"] == ("embedding", "position", *heads, "MLP 0", *rest)
    assert names["attn_only"] == ("embedding", "position", *heads, *rest)
    assert names["jamba"] == ("embedding", "layer 0")


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3", "falcon-alibi"])
def test_mean_keys(loaded, name):
    """Sums of weighted rows, mapped and turned, are the mean keys of several texts."""
    model = loaded[name]
    ids = builders.random_ids(5, 13, seed=3)
    reading = read_components(model, ids, 2)
    for head in range(model.geometry.n_heads):
        weight = reading.weight("key", head)[..., None]
        means = [
            reading.key.through(part, (part.rows * weight).mean(dim=1), head)
            for part in reading.parts
        ]
        if reading.has_constant:
            means.append(reading.key.constant(head).mean(dim=0)[None])
        found = reading.turned(torch.cat(means)[:, None])[:, 0]
        close(found, reading.projected("key", head).mean(dim=1))
        own = head * reading.call.k.shape[1] // model.geometry.n_heads
        close(found.sum(dim=0), reading.call.k[:, own].mean(dim=0))


@pytest.mark.parametrize("name", ["gpt2", "qwen3"])
def test_some_positions(loaded, ids, name):
    reading = read_components(loaded[name], ids, 1)
    rows = slice(7, 11)
    whole = reading.projected("query", 3)
    np.testing.assert_allclose(
        reading.projected("query", 3, rows), whole[:, :, rows], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", REFUSED)
def test_refused(loaded, ids, name):
    with pytest.raises(UnsupportedModel, match=REFUSED[name]) as refusal:
        read_components(loaded[name], ids, 1)
    assert str(refusal.value).count("\n") == 0


def test_queries_that_are_scaled_by_their_position(loaded, ids):
    """Llama 4's, where it does not turn them, are not read; what was written before them is."""
    model, seen = loaded["llama4"], Recorder()
    with pytest.raises(UnsupportedModel, match="does not know"):
        read_components(model, ids, 1)
    model.run(ids, observers=[seen], until=2)
    written = sum(part.written().sum(dim=0) for each in read_parts(model, ids, 2) for part in each)
    stream = seen.residuals[2]
    close(written[0] - written[1], stream[0] - stream[1])  # but for biases


def test_norms_after_the_sum(tmp_path, ids):
    """OPT with norms behind the sum: its stream is no sum of what was written."""
    path = builders.opt(tmp_path / "post", do_layer_norm_before=False)
    model = loading.load(catalog.locate(str(path)), "cpu")
    with pytest.raises(UnsupportedModel, match="not split into components"):
        read_components(model, ids, 1)


def test_something_else_in_the_stream(model_dirs, ids, monkeypatch):
    """A block that adds what none of its modules puts out is refused."""
    model = loading.load(catalog.locate(str(model_dirs["llama"])), "cpu")
    monkeypatch.setattr(blocks, "multiplier", lambda _: 0.9)
    with pytest.raises(UnsupportedModel, match="not all that is added"):
        read_components(model, ids, 0)


def test_attention_that_reads_something_else(model_dirs, ids):
    """Neither the stream nor what a norm made of it."""
    model = loading.load(catalog.locate(str(model_dirs["gpt2"])), "cpu")
    model.block(1).ln_1 = torch.nn.Linear(35, 35)
    with pytest.raises(UnsupportedModel, match="layer 1, attention reads more than the normed str"):
        read_components(model, ids, 2)


def test_norms_of_queries_and_keys_with_biases(tmp_path, ids):
    model = loading.load(catalog.locate(str(hub_form.build(tmp_path / "m", "persimmon"))), "cpu")
    for reading in readings(model, ids):
        for side, real in (("query", reading.call.q), ("key", reading.call.k)):
            for head in range(model.geometry.n_heads):
                close(reading.projected(side, head).double().sum(dim=0), real[:, head])


def test_a_layer_norm_behind(model_dirs, ids):
    """A norm behind attention may centre and have a bias, which is among the biases."""
    model = loading.load(catalog.locate(str(model_dirs["olmo2"])), "cpu")
    for layer in range(2):
        norm = torch.nn.LayerNorm(60)
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
        model.block(layer).post_attention_layernorm = norm
    stream = Recorder()
    model.run(ids, observers=[stream], until=2)
    reading = read_components(model, ids, 2)
    assert "biases" in reading.names
    close(sum(part.written().sum(dim=0) for part in reading.parts), stream.residuals[2])


def test_half_precision(model_dirs, ids):
    model = loading.load(catalog.locate(str(model_dirs["qwen3"])), "cpu", "bfloat16")
    for reading in readings(model, ids):
        close(reading.projected("key", 1).sum(dim=0), reading.call.k[:, 0].float(), 3e-2)


def test_nothing_is_left_behind(loaded, ids):
    model = loaded["gemma2"]

    def hooks():
        return [
            (len(vars(part)["_forward_hooks"]), len(vars(part)["_forward_pre_hooks"]))
            for part in model.module.modules()
        ]

    before = hooks(), model.run(ids)
    read_components(model, ids, 1)
    assert hooks() == before[0]
    assert torch.equal(model.run(ids), before[1])


def test_what_a_model_remembers_is_small(loaded, ids):
    """How its blocks are built: no tensor, whose sizes would grow with the layers."""
    loaded["llama"].notes.clear()
    components.read_layers(loaded["llama"], ids, range(2))

    ((key, blocks),) = loaded["llama"].notes.values()
    assert key is None
    assert not any(
        isinstance(each, torch.Tensor) for block in blocks for each in vars(block).values()
    )
