"""Models that read images beside text: the language model in them is read, on text alone."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import poskernel_core as pk
from poskernel_core.common.errors import UnsupportedModel
from poskernel_core.forward import loading
from poskernel_core.models import catalog
from poskernel_core.models.configuration import read_geometry
from tests.support import builders
from tests.support.builders.families import FAMILY_MODELS

WITHIN = [name for name, one in FAMILY_MODELS.items() if one.within]
TEXTS, CONTEXT, QUERY = 5, 23, 17


@pytest.fixture(scope="module")
def llava(tmp_path_factory):
    return FAMILY_MODELS["llama-within"].build(tmp_path_factory.mktemp("within") / "llava")


@pytest.mark.parametrize("name", WITHIN)
def test_sizes_are_those_of_the_language_model(tmp_path, name):
    one = FAMILY_MODELS[name]
    geometry = catalog.locate(str(one.build(tmp_path / name))).geometry
    assert (one.kind, "rotary") == (geometry.architecture, geometry.scheme)
    assert (3, 6, 2, 60) == (
        geometry.n_layers, geometry.n_heads, geometry.n_kv_heads, geometry.d_model,
    )  # fmt: skip


def test_the_same_language_model_alone(tmp_path, llava):
    """A Llama taken out of a Llava gives the same kernels and logits, number by number."""
    within = pk.load(str(llava), device="cpu")
    alone = tmp_path / "llama"
    builders.hf_eager_model(llava).model.language_model.save_pretrained(alone)
    config = json.loads((alone / "config.json").read_text())
    (alone / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaForCausalLM"]}))
    plain = AutoModelForCausalLM.from_pretrained(alone)
    plain.lm_head.weight.data.copy_(within.module.lm_head.weight)
    plain.save_pretrained(alone)
    other = pk.load(str(alone), device="cpu")
    ids = builders.random_ids(TEXTS, CONTEXT)

    kernels = [
        pk.analyse(
            "kernel",
            pk.run_pass(model, ids.numpy(), positions=(QUERY,), queries_per_position=TEXTS),
            query=QUERY, skip=2,
        ).values["kernel"]
        for model in (within, other)
    ]  # fmt: skip
    np.testing.assert_allclose(*kernels, atol=1e-6)
    torch.testing.assert_close(within.run(ids), other.run(ids), rtol=1e-5, atol=1e-5)
    assert type(within.module) is not type(other.module)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama-within", "qwen2-vl"])
def test_questions_that_change_the_model(tmp_path, fresh_engine, name):
    path = str(FAMILY_MODELS[name].build(tmp_path / name))
    for question, asked in (
        ("rotary-spectrum", {}),
        ("changed-bands", {"head": "L1H0"}),
        ("additivity", {"params": {"passages": 4}}),
        ("position-vs-token", {"params": {"length": 7, "samples": 50}}),
    ):
        found = pk.show(question, path, windows=8, context=32, engine=fresh_engine, **asked)
        assert all(np.isfinite(array).any() for array in found.values.values()), question


def test_prompts_that_look_ahead():
    """PaliGemma reads its prompt in both directions: that is no causal attention."""
    with pytest.raises(UnsupportedModel, match="read in both directions"):
        read_geometry("a model", {"model_type": "paligemma"})


def test_a_model_without_a_causal_language_model(llava):
    located = catalog.locate(str(llava))
    config = json.loads((llava / "config.json").read_text())
    (llava / "config.json").write_text(json.dumps(config | {"model_type": "clip"}))
    try:
        with pytest.raises(UnsupportedModel, match=r"^[^\n]*'clip'[^\n]* no language model"):
            loading.load(located, "cpu")
    finally:
        (llava / "config.json").write_text(json.dumps(config))
