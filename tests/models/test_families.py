"""Families held against transformers' own eager attention, on tiny models, features on."""

import gc
import sys
import weakref

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import poskernel_core as pk
from poskernel_core.forward import attention, loading
from poskernel_core.forward.edits import Edit
from poskernel_core.models import catalog
from tests.support import Made, builders
from tests.support.builders.families import EVERY_MODEL, tried
from tests.support.truth import Recorder

TEXTS, LENGTH = 2, 37
OWN_ATTENTION = ("gpt_neo", "gptj", "bloom", "mpt", "falcon")
ALL = pytest.mark.parametrize("name", tried())


@pytest.fixture(scope="module")
def truths(model_dirs):
    """Patterns, queries and keys, streams and logits of plain transformers, eagerly."""
    return Made(lambda name: eager(model_dirs[name], random_ids()))


def random_ids(length=LENGTH):
    return builders.random_ids(TEXTS, length)


def eager(path, ids):
    """Run plain transformers, and keep what its own eager attention is given and gives."""
    model = builders.hf_eager_model(path)
    kept = {"q": [], "k": []}
    for part in model.modules():
        if type(part).__name__ == "FalconAttention":
            part.register_forward_pre_hook(without_second_bias, with_kwargs=True)
    modules = {
        type(m).__module__ for m in model.modules() if "transformers.models" in type(m).__module__
    }
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            original = getattr(sys.modules.get(module), "eager_attention_forward", None)
            if original is not None:
                patch.setattr(
                    f"{module}.eager_attention_forward",
                    lambda *args, original=original, **kwargs: keep(kept, original, args, kwargs),
                )
        with torch.inference_mode():
            out = model(ids, output_attentions=True, output_hidden_states=True, use_cache=False)
    return out, kept


def without_second_bias(_module, args, kwargs):
    """Falcon's eager attention adds ALiBi twice, its default one once: the mask holds it too."""
    alibi = kwargs.get("alibi")
    return args, kwargs if alibi is None else {**kwargs, "alibi": 0 * alibi}


def test_falcon_adds_its_bias_once(loaded, model_dirs):
    """Transformers' default attention, other than its eager one, is the reference for Falcon."""
    name = "falcon-alibi"
    ids = random_ids(300)
    plain = AutoModelForCausalLM.from_pretrained(model_dirs[name], attn_implementation="sdpa")
    with torch.inference_mode():
        expected = plain.eval()(ids, use_cache=False).logits
    np.testing.assert_allclose(loaded[name].run(ids), expected, rtol=1e-4, atol=1e-4)


def keep(kept, original, args, kwargs):
    kept["q"].append(args[1] if len(args) > 1 else kwargs["query"])
    kept["k"].append(args[2] if len(args) > 2 else kwargs["key"])
    return original(*args, **kwargs)


@ALL
def test_queries_keys_and_patterns(loaded, truths, monkeypatch, name):
    monkeypatch.setattr(attention, "BLOCK", 11)
    out, kept = truths[name]
    one, recorder = EVERY_MODEL[name], Recorder(patterns=True)
    loaded[name].run(random_ids(), observers=[recorder], until=-1)
    layers = [layer for layer in range(one.layers) if layer not in one.bare]
    patterns = recorder.patterns()

    assert len(out.attentions) == len(layers)
    for place, layer in enumerate(layers):
        np.testing.assert_allclose(patterns[layer], out.attentions[place], atol=1e-5)
        if one.kind not in OWN_ATTENTION:
            call = recorder.calls[layer]
            np.testing.assert_allclose(call.q, kept["q"][place], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(call.k, kept["k"][place], rtol=1e-5, atol=1e-5)


@ALL
def test_logits_and_stream(loaded, truths, name):
    out, _ = truths[name]
    own = out.logits.numpy()
    model, recorder = loaded[name], Recorder(True)
    scale = np.abs(own).max()

    for logits in (
        model.run(random_ids()),
        model.run(random_ids(), observers=[recorder]),
        model.run(random_ids(), Edit()),
    ):
        np.testing.assert_allclose(logits / scale, own / scale, atol=1e-5)
    for found, expected in zip(recorder.residuals, out.hidden_states, strict=False):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


@ALL
def test_mean_key_kernels_by_brute_force(loaded, name):
    model, n, skip, one = loaded[name], LENGTH - 4, 3, EVERY_MODEL[name]
    windows = builders.random_ids(5, LENGTH).numpy()
    gathered = pk.run_pass(model, windows, positions=(n,), queries_per_position=5)
    found = pk.analyse("kernel", gathered, query=n, skip=skip).values["kernel"]
    recorder = Recorder()
    model.run(torch.from_numpy(windows), observers=[recorder], until=-1)

    for layer in range(one.layers):
        if layer in one.bare:
            assert np.isnan(found[layer]).all()
            continue
        call, head = recorder.calls[layer], model.geometry.n_heads - 1
        key_head = head * call.k.shape[1] // call.q.shape[1]
        mean = call.k[:, key_head].double().mean(dim=0)
        window, chunk = one.windows[layer], one.chunks[layer] if one.chunks else None
        low = max(skip, n - window + 1 if window else 0, n // chunk * chunk if chunk else 0)
        kernels = []
        for text in range(5):
            a = call.scale * (mean[low : n + 1] @ call.q[text, head, n].double())
            if call.cap is not None:
                a = call.cap * torch.tanh(a / call.cap)
            if call.slopes is not None:
                a = a + torch.from_numpy(call.slopes.bias(n + 1)[head, low:])
            kernels.append(torch.softmax(a, dim=-1))
        expected = torch.stack(kernels).mean(dim=0)
        np.testing.assert_allclose(found[layer, head, low : n + 1], expected, atol=2e-5)
        assert 0 == found[layer, head, :low].sum() + found[layer, head, n + 1 :].sum()


@ALL
def test_a_model_is_freed_with_its_last_reader(model_dirs, name):
    """Nothing of ours, nor of the pass that proves it, holds the weights in a circle."""
    model = loading.load(catalog.locate(str(model_dirs[name])), "cpu")
    held = {each: weakref.ref(weight) for each, weight in model.module.named_parameters()}
    gc.collect()
    gc.disable()
    try:
        del model
        assert [] == [each for each, weight in held.items() if weight() is not None]
    finally:
        gc.enable()
