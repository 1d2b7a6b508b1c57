"""Weights of 16 bits: read as they are, computed exactly part by part; memory said beforehand."""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from poskernel_core.common.errors import ComputeFailed, UnsupportedModel
from poskernel_core.forward import hooks, loading, memory, proof
from poskernel_core.models import catalog
from poskernel_core.passes import streaming
from poskernel_core.passes.prepare import sizes_for
from tests.support import builders
from tests.support.builders.families import FAMILY_MODELS

NAMES = ("llama", "gpt2", "gpt-oss")
EACH = pytest.mark.parametrize("name", NAMES)
IDS = builders.random_ids(2, 29)


@pytest.fixture(scope="module")
def halves(model_dirs, tmp_path_factory):
    root = tmp_path_factory.mktemp("halves")
    found = {}
    for name in NAMES:
        path = root / name
        if name not in model_dirs:
            one = FAMILY_MODELS[name]  # products of experts want rows of 16 bytes
            aligned = {"hidden_size": 64, "intermediate_size": 40}
            replace(one, config=one.config | aligned).build(path)
        else:
            shutil.copytree(model_dirs[name], path)
        tensors = load_file(path / "model.safetensors")
        tensors = {key: tensor.bfloat16() for key, tensor in tensors.items()}
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        found[name] = catalog.locate(str(path))
    return found


def dtypes(model):
    return {parameter.dtype for parameter in model.module.parameters()}


@EACH
def test_files_of_16_bits_stay_so(halves, name):
    assert {torch.float32} == dtypes(loading.load(halves[name], "cpu"))
    assert {torch.bfloat16} == dtypes(loading.load(halves[name], "cpu", "bfloat16"))


@EACH
def test_float32_part_by_part_is_float32(halves, name):
    wide = loading.load(halves[name], "cpu")
    half = loading.load(halves[name], "cpu", "bfloat16")
    before = [parameter.clone() for parameter in half.module.parameters()]
    coarse = half.run(IDS)

    with memory.in_float32(half.module):
        found = half.run(IDS)
        half.run(IDS, until=1)  # a pass that is broken off inside a part

    assert torch.equal(found, wide.run(IDS))
    assert not torch.equal(found, coarse)
    assert torch.equal(coarse, half.run(IDS))
    for left, right in zip(before, half.module.parameters(), strict=True):
        assert torch.equal(left, right)
        assert left.dtype == right.dtype


def test_one_part_at_a_time_is_wide(halves):
    half = loading.load(halves["llama"], "cpu", "bfloat16")
    layers, most = half.module.model.layers, []

    with memory.in_float32(half.module):
        for part in half.module.modules():
            if isinstance(part, torch.nn.Linear):
                part.register_forward_hook(
                    lambda *_: most.append(
                        sum(p.dtype == torch.float32 for p in half.module.parameters())
                    )
                )
        half.run(IDS)

    assert 7 * len(layers) <= len(most)
    assert max(most) <= 1


@EACH
def test_the_error_is_that_against_a_copy(halves, name):
    """Measured without one, it is what a float32 copy gives."""
    located = halves[name]
    plan = sizes_for(located.geometry, IDS.numpy(), (3,), 2, True)
    expected = streaming.dtype_error(loading.load(located, "cpu"), plan, IDS.numpy(), "bfloat16")
    model = loading.load(located, "cpu", "bfloat16")

    found = streaming.dtype_error(model, plan, IDS.numpy(), "bfloat16")

    assert 1e-4 < found < 0.1
    assert found == pytest.approx(expected, rel=1e-6)
    assert {torch.bfloat16} == dtypes(model)


def little(monkeypatch, free):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free))


def test_memory_is_said_before_anything_is_read(model_dirs, monkeypatch):
    located = catalog.locate(str(model_dirs["llama"]))
    numbers = sum(p.numel() for p in loading.load(located, "cpu").module.parameters())
    little(monkeypatch, 3 * numbers)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", None)
    with pytest.raises(ComputeFailed, match=r"needs .* in float32, .* are free: choose bfloat16 "):
        loading.load(located, "cpu")
    little(monkeypatch, numbers)
    with pytest.raises(ComputeFailed, match="free: choose a smaller model"):
        loading.load(located, "cpu", "bfloat16")

    monkeypatch.undo()
    little(monkeypatch, 3 * numbers)
    assert {torch.bfloat16} == dtypes(loading.load(located, "cpu", "bfloat16"))


def test_another_attention_is_refused_with_its_figure(tmp_path, monkeypatch):
    located = catalog.locate(str(FAMILY_MODELS["gemma2"].build(tmp_path / "gemma2")))
    with_all = hooks.AttentionCall
    monkeypatch.setattr(hooks, "AttentionCall", lambda *rule: with_all(*rule[:7], None, *rule[8:]))

    with pytest.raises(UnsupportedModel, match=r"patterns differ by up to 0\.\d+, logits by 0"):
        loading.load(located, "cpu")
    monkeypatch.undo()
    assert proof.difference(loading.load(located, "cpu")).largest < 1e-5


def test_heads_that_are_not_as_told_are_refused(tmp_path):
    path = FAMILY_MODELS["olmo-hybrid"].build(tmp_path / "hybrid")
    located = catalog.locate(str(path))
    geometry = located.geometry
    for layer, words in (
        (0, "width 10 that share 2 keys in layer 0, and the model has no heads"),
        (1, "no heads in layer 1, and the model has 6 heads of width 10"),
    ):
        layers = list(geometry.layers)
        layers[layer] = geometry.layers[1 - layer]
        wrong = replace(located, geometry=replace(geometry, layers=tuple(layers)))
        with pytest.raises(UnsupportedModel, match=words):
            loading.load(wrong, "cpu")
