"""Models that one device cannot hold: which part lies where, and the same numbers as in memory."""

from dataclasses import replace

import numpy as np
import psutil
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import poskernel_core as pk
from poskernel_core.common.errors import ComputeFailed
from poskernel_core.forward import loading, memory
from poskernel_core.forward.interventions import AblatedHeads
from poskernel_core.forward.loading import place
from poskernel_core.models import catalog
from poskernel_core.passes import streaming
from poskernel_core.passes.prepare import sizes_for
from tests.support import builders
from tests.support.builders.families import FAMILY_MODELS

IDS = builders.random_ids(3, 29)
DEEP = {"olmo2": "num_hidden_layers", "mixtral": "num_hidden_layers", "gptj": "n_layer"}
"""Families with plain layers, with experts, and with an adapter; and what counts their layers."""
LAYERS = 11


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """Models of so many layers that the embeddings are a small part."""
    root = tmp_path_factory.mktemp("deep")
    return {
        name: replace(
            FAMILY_MODELS[name], config=FAMILY_MODELS[name].config | {count: LAYERS}
        ).build(root / name)
        for name, count in DEEP.items()
    }


@pytest.fixture(scope="module")
def skeleton(deep):
    config = AutoConfig.from_pretrained(deep["olmo2"])
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


@pytest.fixture
def on_disk(monkeypatch):
    def load(path, dtype="float32", share=0.6):
        located = catalog.locate(str(path))
        whole = (path / "model.safetensors").stat().st_size / (2 if dtype == "bfloat16" else 1)
        monkeypatch.setenv("POSKERNEL_WEIGHTS_ON_DISK", "1")
        monkeypatch.setenv("POSKERNEL_MEMORY_GB", f"{share * memory.REST * whole / 1e9:.9f}")
        return loading.load(located, "cpu", dtype)

    return load


def sizes(skeleton):
    """Bytes of every layer, and of what comes before and after, in float32."""
    count = {name: 4 * sum(p.numel() for p in part.parameters())
             for name, part in skeleton.model.named_children()}  # fmt: skip
    layers = [4 * sum(p.numel() for p in part.parameters()) for part in skeleton.model.layers]
    return layers[0], len(layers), count["embed_tokens"]


def test_layers_are_spread_and_never_cut(skeleton):
    layer, count, embedding = sizes(skeleton)
    half = memory.REST * (embedding + layer * (count // 2 + 2.5))
    found = place("m", skeleton, torch.float32, {0: half, 1: 1e12, "cpu": 1e12})

    assert torch.device("cuda", 0) == found.home
    assert found.devices == ("GPU 0", "GPU 1")
    told = {name: at for name, at in found.parts.items() if name.startswith("model.layers.")}
    assert all(name.count(".") == 2 for name in told)
    assert sorted(told.values()) == list(told.values())
    assert found.parts["model.embed_tokens"] == 0


def test_what_fits_nowhere_else_stays_on_the_disk(skeleton):
    layer, count, embedding = sizes(skeleton)
    room = memory.REST * (embedding + 2.5 * layer)
    found = place("m", skeleton, torch.float32, {"cpu": room})

    assert found.devices == ("memory", "disk")
    assert torch.device("cpu") == found.home
    assert found.parts[f"model.layers.{count - 1}"] == "disk"
    assert found.parts["model.layers.0"] == "cpu"


def test_not_even_a_layer(skeleton):
    with pytest.raises(ComputeFailed, match=r"Not even the first layer of 'm' fits into the 1e-06"):
        place("m", skeleton, torch.float32, {"cpu": 1e3})


@pytest.mark.parametrize("name", DEEP)
def test_from_the_disk_the_numbers_are_the_same(deep, on_disk, name):
    whole = loading.load(catalog.locate(str(deep[name])), "cpu")
    logits, cut = whole.run(IDS), AblatedHeads([(0, 1), (1, 0)])
    gathered = pk.run_pass(whole, IDS.numpy())

    part = on_disk(deep[name])

    assert part.nbytes < 0.8 * whole.nbytes
    assert (part.where, whole.where) == ("cpu, memory, disk", "cpu")
    torch.testing.assert_close(part.run(IDS), logits, rtol=0, atol=0)
    torch.testing.assert_close(part.run(IDS, cut), whole.run(IDS, cut), rtol=0, atol=0)
    again = pk.run_pass(part, IDS.numpy())
    for layer in range(whole.geometry.n_layers):
        expected = gathered.layer(layer)
        for statistic, array in again.layer(layer).items():
            np.testing.assert_array_equal(array, expected[statistic])
    assert any(parameter.is_meta for parameter in part.module.parameters())


def test_the_error_of_16_bits_from_the_disk(deep, on_disk):
    """Read as float32 one part at a time, it is the error that a copy in memory has."""
    located = catalog.locate(str(deep["olmo2"]))
    plan = sizes_for(located.geometry, IDS.numpy(), (3,), 2, True)
    expected = streaming.dtype_error(
        loading.load(located, "cpu", "bfloat16"), plan, IDS.numpy(), "bfloat16"
    )
    part = on_disk(deep["olmo2"], "bfloat16")
    before = part.run(IDS, until=1)

    found = streaming.dtype_error(part, plan, IDS.numpy(), "bfloat16")

    assert any(parameter.is_meta for parameter in part.module.parameters())
    assert found == pytest.approx(expected, rel=1e-6)
    assert {torch.bfloat16} == {parameter.dtype for parameter in part.module.parameters()}
    assert before.shape == part.run(IDS, until=1).shape


def test_without_leave_nothing_stays_on_the_disk(model_dirs, monkeypatch):
    located = catalog.locate(str(model_dirs["llama"]))
    monkeypatch.setenv("POSKERNEL_MEMORY_GB", "0.0000001")
    with pytest.raises(ComputeFailed, match=r"another machine; or .*POSKERNEL_WEIGHTS_ON_DISK=1"):
        loading.load(located, "cpu")


def test_room_is_what_is_free_or_allowed(monkeypatch):
    free = memory.room(torch.device("cpu"))
    assert list(free) == ["cpu"]
    assert free["cpu"] <= psutil.virtual_memory().total
    monkeypatch.setenv("POSKERNEL_MEMORY_GB", "0.25")
    assert memory.room(torch.device("cpu")) == {"cpu": 0.25e9}
