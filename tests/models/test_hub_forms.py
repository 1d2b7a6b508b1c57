"""Configurations in the forms that the hub has: read as transformers reads them."""

import json
import subprocess

import pytest
import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.forward import loading
from poskernel_core.models import catalog, configuration
from tests.support import ROOT, architectures
from tests.support.builders import hub_form
from tests.support.truth import Recorder
from tools.ship_results import configurations

CONFIGS = json.loads((ROOT / "tests/support/builders/hub_configs.json").read_text("utf-8"))
IDS = architectures.IDS
UNKNOWN = (
    "the model is of architecture {!r}, which the installed transformers does not know: update it, "
    "or choose another model."
)
"""What is said of an architecture that came after the lowest transformers allowed."""


def loaded(path):
    return loading.load(catalog.locate(str(path)), "cpu")


def compared(path):
    """A model whose logits are those of plain transformers."""
    model, expected = loaded(path), hub_form.plain_logits(path, IDS)
    scale = float(expected.abs().max())
    torch.testing.assert_close(model.run(IDS) / scale, expected / scale, rtol=0, atol=1e-5)
    return model


@pytest.mark.parametrize("name", CONFIGS)
def test_published_forms(tmp_path, name):
    told = CONFIGS[name]
    config = CONFIG_MAPPING[told["model_type"]].from_dict(told)
    model = compared(hub_form.write(tmp_path / name, config, told))
    recorder = Recorder()
    model.run(IDS, observers=[recorder], until=-1)

    for call, layer in zip(recorder.calls, model.geometry.layers, strict=True):
        if layer.reason is None:
            assert (call.k.shape[1], call.k.shape[3]) == (layer.n_kv_heads, layer.d_head)
            assert (call.window or call.chunk) == layer.window


@pytest.mark.parametrize("named", ["flash_attention_2", "kernels-community/flash-attn3", "sdpa"])
@pytest.mark.parametrize("inner", [False, True])
def test_an_attention_that_is_named_is_ignored(tmp_path, named, inner):
    told = CONFIGS["gemma3_4b" if inner else "granite41_30b"]
    config = CONFIG_MAPPING[told["model_type"]].from_dict(told)
    path = hub_form.write(tmp_path / "m", config, told)
    part = told | {"_attn_implementation": named, "auto_map": {"AutoConfig": "others.Config"}}
    if inner:
        part["text_config"] = part["text_config"] | {"_attn_implementation": named}
    before = loaded(path).run(IDS)
    (path / "config.json").write_text(json.dumps(part))
    torch.testing.assert_close(loaded(path).run(IDS), before, rtol=0, atol=0)


def test_keys_that_layers_share(tmp_path):
    """Layers 3 to 5 use the keys of the last earlier layer that masks alike, as calls show."""
    slide, full = "sliding_attention", "full_attention"
    config = CONFIG_MAPPING["gemma4_text"](**{
        "vocab_size": 293, "hidden_size": 60, "num_hidden_layers": 6, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "global_head_dim": 14, "intermediate_size": 36,
        "max_position_embeddings": 61, "sliding_window": 7, "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 293, "num_kv_shared_layers": 3, "pad_token_id": 0,
        "layer_types": [slide, slide, full, slide, slide, full],
    })  # fmt: skip
    model = compared(hub_form.write(tmp_path / "m", config, hub_form.hub_form(config)))
    recorder = Recorder()
    model.run(IDS, observers=[recorder], keep=1)

    assert [None, None, None, 1, 1, 2] == [each.keys_of for each in model.geometry.layers]
    for layer, each in enumerate(model.geometry.layers):
        for other in range(layer):
            k, before = recorder.calls[layer].k, recorder.calls[other].k
            alike = k.shape == before.shape and bool((k == before).all())
            root = each.keys_of if each.keys_of is not None else layer
            theirs = model.geometry.layers[other].keys_of
            assert alike == (root == (other if theirs is None else theirs))


@pytest.mark.parametrize(
    "kind",
    architectures.KINDS
    if architectures.EVERY
    else ["bailing_hybrid", "bert", "deepseek_v2", "deepseek_v32", "gemma4_text", "gpt_neo",
          "granite_swa", "llama4_text", "mllama", "zaya"],
)  # fmt: skip
def test_an_architecture_runs_or_says_why(tmp_path, kind):
    said = architectures.told()
    assert kind in said, "make the table anew: python -m tests.support.architectures"
    expected = said[kind] if kind in CONFIG_MAPPING else UNKNOWN.format(kind)
    assert expected == architectures.outcome(tmp_path / kind, kind)


def test_bundled_models_are_read_without_transformers():
    shipped = json.loads(configuration.SHIPPED.read_text("utf-8"))
    assert shipped == json.loads(json.dumps(configurations()))


def test_read_once_by_a_process_of_its_own(tmp_path, monkeypatch):
    """Without torch, one process reads a configuration, and what it said is kept on disk."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    here, told = configuration.read_geometry("m", CONFIGS["granite41_30b"]), []
    run = subprocess.run
    monkeypatch.setattr(configuration, "readers", [])
    monkeypatch.setattr(
        configuration.subprocess, "run", lambda *args, **more: told.append(1) or run(*args, **more)
    )
    for kept in tmp_path.rglob("*.json"):
        kept.unlink()
    for _ in range(2):
        configuration.read_once.cache_clear()
        assert here == configuration.read_geometry("m", CONFIGS["granite41_30b"])
    assert [1] == told
    with pytest.raises(UnsupportedModel, match="architecture 'm1', which the installed transform"):
        configuration.read_geometry("m", {"model_type": "m1"})
    (file,) = tmp_path.rglob("configurations/*.json")
    file.write_text("{}")
    configuration.read_once.cache_clear()
    assert here == configuration.read_geometry("m", CONFIGS["granite41_30b"])


def test_without_transformers(monkeypatch):
    configuration.read_once.cache_clear()
    monkeypatch.setattr(configuration, "find_spec", lambda _: None)
    monkeypatch.setattr(configuration, "default_directory", lambda: ROOT / "none")
    assert "gpt2" == catalog.locate("demo-gpt2").geometry.architecture
    with pytest.raises(UnsupportedModel, match="transformers is needed, which is not installed"):
        configuration.read_geometry("m", CONFIGS["bloom560m"])
    configuration.read_once.cache_clear()
