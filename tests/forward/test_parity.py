"""Every architecture's queries, keys and attention against plain transformers, eagerly computed."""

import numpy as np
import pytest
import torch

import poskernel_core as pk
from poskernel_core.analyses.kernels.formulas import kernel_rows
from poskernel_core.forward import attention, loading
from poskernel_core.models import catalog
from tests.support import builders
from tests.support.test_builders import SHAPES
from tests.support.truth import Recorder, truth_of

ALL = pytest.mark.parametrize("name", builders.ARCHITECTURES)
TEXTS = 2


@pytest.fixture(scope="module")
def loaded(model_dirs):
    """Every tiny model, loaded as a pass loads it."""
    return {
        name: loading.load(catalog.locate(str(path)), "cpu") for name, path in model_dirs.items()
    }


@pytest.fixture(scope="module")
def truths(model_dirs):
    """What plain transformers computes on two windows of every model's whole context."""
    return {
        name: truth_of(path, builders.random_ids(TEXTS, SHAPES[name][2]).numpy())
        for name, path in model_dirs.items()
    }


def recorded(model, name, patterns=False, texts=TEXTS, seed=0):
    """What is seen of a model that runs on random windows as far as its last attention."""
    recorder = Recorder(patterns)
    ids = builders.random_ids(texts, SHAPES[name][2], seed)
    assert 0 == model.run(ids, observers=[recorder], until=-1).numel()
    return recorder


def scores(call, keys=None):
    """`scale * q . k` with shared key heads repeated, and what is hidden at -inf; float64."""
    q, k = call.q.double().numpy(), (call.k if keys is None else keys).double().numpy()
    k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    found = call.scale * np.einsum("thnd,thid->thni", q, k)
    n, i = np.ogrid[: q.shape[2], : q.shape[2]]
    hidden = (i > n) | (i <= n - (call.window or q.shape[2]))
    return np.where(hidden, -np.inf, found)


def softmax(x):
    """Softmax over the last axis."""
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


@ALL
def test_captured_queries_and_keys_give_the_attention(loaded, truths, name):
    recorder = recorded(loaded[name], name)

    assert SHAPES[name][3] == [call.window for call in recorder.calls]
    for call, expected in zip(recorder.calls, truths[name].attentions, strict=True):
        np.testing.assert_allclose(softmax(scores(call)), expected, atol=1e-5)


@ALL
@pytest.mark.parametrize("block", [11, 128])
def test_blocks_are_the_pattern(loaded, truths, monkeypatch, name, block):
    monkeypatch.setattr(attention, "BLOCK", block)

    recorder = recorded(loaded[name], name, patterns=True)

    assert len(recorder.blocks) == SHAPES[name][0] * -(-SHAPES[name][2] // block)
    np.testing.assert_allclose(
        torch.stack(recorder.patterns()), np.stack(truths[name].attentions), atol=1e-5
    )


@ALL
@pytest.mark.parametrize("patterns", [False, True])
def test_residual_stream(loaded, truths, monkeypatch, name, patterns):
    monkeypatch.setattr(attention, "BLOCK", 11)

    recorder = recorded(loaded[name], name, patterns)

    for found, expected in zip(recorder.residuals, truths[name].residuals, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5)


@ALL
def test_attention_output(loaded, truths, monkeypatch, name):
    monkeypatch.setattr(attention, "BLOCK", 11)
    calls = recorded(loaded[name], name).calls

    for call, pattern in zip(calls, truths[name].attentions, strict=True):
        values = call.v.repeat_interleave(call.q.shape[1] // call.v.shape[1], dim=1).numpy()
        expected = np.einsum("thni,thid->thnd", pattern, values)
        for see in (None, lambda _block: None):
            found = attention.attend(call, see)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5)


@ALL
def test_logits(loaded, truths, name):
    ids = builders.random_ids(TEXTS, SHAPES[name][2])

    with torch.inference_mode():
        found = loaded[name].module(ids, use_cache=False).logits

    np.testing.assert_allclose(found, truths[name].logits, rtol=1e-4, atol=5e-5)


@ALL
def test_identity_of_kernel_and_content(loaded, truths, name):
    length = SHAPES[name][2]
    positions = (0, 17, length - 1)
    gathered = pk.run_pass(
        loaded[name],
        builders.random_ids(TEXTS, length).numpy(),
        positions=positions,
        queries_per_position=TEXTS,
    )

    for layer, call in enumerate(recorded(loaded[name], name).calls):
        arrays = gathered.layer(layer)
        mean_keys = torch.from_numpy(arrays["mean_keys"])[None].expand_as(call.k)
        whole, position = scores(call), scores(call, mean_keys)
        for place, n in enumerate(positions):
            low = max(0, n + 1 - (call.window or length))
            kernel = kernel_rows(
                arrays["queries"][place], arrays["mean_keys"][:, low : n + 1], call.scale
            ).transpose(1, 0, 2)
            content = (whole - np.where(np.isfinite(position), position, 0))[:, :, n, low : n + 1]
            weighted = kernel * np.exp(content)
            expected = truths[name].attentions[layer][:, :, n, low : n + 1]
            found = weighted / weighted.sum(axis=-1, keepdims=True)
            np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_pass_ends_at_the_last_attention(loaded):
    model, ran = loaded["gpt2"], []
    last = model.module.transformer.h[-1].mlp
    handle = last.register_forward_hook(lambda *_: ran.append("the last layer's MLP"))

    recorder = recorded(model, "gpt2")
    handle.remove()

    assert [] == ran
    assert 3 == len(recorder.calls)
    model.run(builders.random_ids(1, 5))
    assert 3 == len(recorder.calls)


def test_an_observer_that_fails_is_taken_off(loaded):
    class Broken(Recorder):
        def attention(self, call, batch) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loaded["llama"].run(builders.random_ids(1, 5), observers=[Broken()])
    with torch.inference_mode():
        loaded["llama"].module(builders.random_ids(1, 5), use_cache=False)
    assert 3 == len(recorded(loaded["llama"], "llama").calls)
