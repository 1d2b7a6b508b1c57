"""Models some of whose layers have no heads; and language models in models that read images."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import poskernel_core as pk
from poskernel_core.analyses.views import figure_of
from poskernel_core.common.errors import BadRequest, UnsupportedModel
from poskernel_core.common.heads import head_name
from poskernel_core.common.specs import CorpusSpec
from poskernel_core.forward import loading
from poskernel_core.forward.attention import uniform_blocks
from poskernel_core.forward.edits import Edit
from poskernel_core.models import catalog
from poskernel_core.models.configuration import read_geometry
from poskernel_core.plotting.by_axes import by_axes
from tests.support import builders
from tests.support.builders.families import FAMILY_MODELS
from tests.support.made_results import answer
from tests.support.truth import Recorder

WINDOWS, CONTEXT, QUERY = 7, 29, 20
IDS = builders.random_ids(WINDOWS, CONTEXT).numpy()
BARE, WITH_HEADS = [0, 2], 1
CONVOLUTION = "a convolution, without attention"


@pytest.fixture
def model(loaded):
    return loaded["lfm2"]


@pytest.mark.parametrize("analysis", ["etc", "kernel", "kernel-distances", "profile", "entropy"])
def test_rows_without_heads_are_empty(model, analysis):
    gather = ("keys", "queries", "patterns", "entropy", "scores", "repeats")
    gathered = pk.run_pass(model, IDS, positions=(12, QUERY), queries_per_position=5, gather=gather)
    params = {} if analysis in ("etc", "profile", "entropy") else {"query": QUERY}
    found = pk.analyse(analysis, gathered, **params)

    assert {"0": CONVOLUTION, "2": CONVOLUTION} == found.provenance["layers_without_heads"]
    seen = 0
    for name, array in found.values.items():
        axes = found.axes[name]
        if {"layer", "head"} <= set(axes):
            rows = np.moveaxis(array, axes.index("layer"), 0)
            bare = rows[BARE]
            assert (bare == -1).all() if name in found.labels else np.isnan(bare).all(), name
            assert not np.isnan(rows[WITH_HEADS]).all(), name
            seen += 1
    assert seen


def test_observers_miss_no_layer(model):
    expected = np.tril(np.ones((CONTEXT, CONTEXT)))
    expected /= expected.sum(axis=1, keepdims=True)
    for edit in (None, Edit()):
        recorder = Recorder(patterns=True)
        model.run(torch.from_numpy(IDS), edit, [recorder])

        assert [0, 1, 2] == [call.layer for call in recorder.calls]
        assert 3 == len(recorder.residuals) == len(recorder.inputs) == len(recorder.outputs)
        for layer in BARE:
            assert not recorder.calls[layer].q.any()
            pattern = recorder.patterns()[layer]
            np.testing.assert_allclose(pattern[0, 0], expected, atol=1e-6)


@pytest.mark.parametrize(
    "made",
    [answer("additivity"), answer("kernel-distances"), answer("recency-patterns")],
    ids=lambda made: made.analysis,
)
def test_figures_of_all_heads_begin_with_a_layer_that_has_some(made):
    figure = figure_of(made.without_heads({0: CONVOLUTION}))
    told = f"{figure.layout.title.text} {figure.layout.annotations}".lower()
    assert re.search("layer [12]", told)
    assert "layer 0" not in told


def test_layers_without_heads_have_no_curves(model):
    gathered = pk.run_pass(model, IDS, positions=(12, QUERY), queries_per_position=5)
    for analysis, params in (("etc", {}), ("kernel", {"query": QUERY}), ("profile", {})):
        figure = by_axes(pk.analyse(analysis, gathered, **params))
        names = {trace.name for trace in figure.data}
        assert any(name.startswith("L1H") for name in names)
        assert not any(name.startswith(("L0", "L2")) for name in names)


@pytest.mark.parametrize("broad", [0.6, 1e9])
def test_the_head_that_is_named_is_there(broad):
    made = answer("contextual-heads").without_heads({0: CONVOLUTION})
    made = replace(made, params={"broad": broad, "steady": 0.1})
    cells = [(layer, head) for layer, head in np.ndindex(made.values["etc"].shape) if layer > 0]
    cells = [cell for cell in cells if made.values["etc"][cell] >= broad] or cells
    expected = min(cells, key=lambda cell: made.values["denominator_cv"][cell])

    (chosen,) = figure_of(made).select_traces({"name": "chosen"})

    assert (f"<b>{head_name(*expected)}</b>",) == chosen.text


@pytest.mark.parametrize("rows", [None, 4])
def test_uniform_blocks_take_no_memory(rows):
    """However many texts and heads there are, a block's numbers are there once."""
    like = torch.zeros(1, device="cpu").expand(50, 99, CONTEXT, 3)
    for block in uniform_blocks(2, like, rows):
        assert block.pattern.untyped_storage().nbytes() <= 4 * CONTEXT * max(rows or 0, CONTEXT)
        np.testing.assert_allclose(block.pattern.sum(dim=-1)[7, 8], 1.0, rtol=1e-6)


@pytest.mark.parametrize("until", [0, 1, 2, -1])
def test_a_pass_ends_in_any_layer(model, until):
    recorder = Recorder()
    model.run(torch.from_numpy(IDS), observers=[recorder], until=until)
    assert range(3)[until] + 1 == len(recorder.residuals) == len(recorder.calls)


def test_a_head_that_is_none_is_refused(model_dirs, tmp_path, fresh_engine, near_worker):
    path = str(model_dirs["lfm2"])
    builders.mini_corpus(tmp_path)
    given = {
        "engine": fresh_engine, "query": QUERY, "windows": WINDOWS, "context": CONTEXT,
        "corpus": CorpusSpec(name=str(tmp_path / "mini.txt")),
    }  # fmt: skip
    with pytest.raises(BadRequest, match=f"Layer 2 has no heads: it is {CONVOLUTION}"):
        pk.show("denominators", path, head="L2H1", **given)
    found = pk.show("etc", path, **given)
    assert np.isnan(found.values["etc"][BARE]).all()
    assert np.isfinite(found.values["etc"][WITH_HEADS]).all()


WITHIN = [name for name, one in FAMILY_MODELS.items() if one.within]
TEXTS = 5


@pytest.fixture(scope="module")
def llava(tmp_path_factory):
    return FAMILY_MODELS["llama-within"].build(tmp_path_factory.mktemp("within") / "llava")


@pytest.mark.parametrize("name", WITHIN)
def test_sizes_are_those_of_the_language_model(model_dirs, name):
    geometry = catalog.locate(str(model_dirs[name])).geometry
    assert (FAMILY_MODELS[name].kind, "rotary") == (geometry.architecture, geometry.scheme)
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
def test_questions_that_change_the_model(model_dirs, fresh_engine, near_worker, name):
    for question, asked in (
        ("rotary-spectrum", {}),
        ("changed-bands", {"head": "L1H0"}),
        ("additivity", {"params": {"passages": 4}}),
        ("position-vs-token", {"params": {"length": 7, "samples": 50}}),
    ):
        found = pk.show(
            question, str(model_dirs[name]), windows=8, context=32, engine=fresh_engine, **asked
        )
        assert all(np.isfinite(array).any() for array in found.values.values()), question


def test_prompts_that_look_ahead():
    """PaliGemma reads its prompt in both directions: that is no causal attention."""
    with pytest.raises(UnsupportedModel, match="read in both directions"):
        read_geometry("a model", {"model_type": "paligemma"})


def test_layers_with_other_numbers_of_heads():
    config = {
        "model_type": "laguna", "vocab_size": 97, "hidden_size": 48, "head_dim": 8,
        "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
        "num_attention_heads_per_layer": [6, 4, 6],
    }  # fmt: skip
    with pytest.raises(UnsupportedModel, match="The layers of 'a model' have 4 or 6 heads: choose"):
        read_geometry("a model", config)


def test_a_model_without_a_causal_language_model(llava):
    located = catalog.locate(str(llava))
    config = json.loads((llava / "config.json").read_text())
    (llava / "config.json").write_text(json.dumps(config | {"model_type": "clip"}))
    try:
        with pytest.raises(UnsupportedModel, match=r"^[^\n]*'clip'[^\n]* no language model"):
            loading.load(located, "cpu")
    finally:
        (llava / "config.json").write_text(json.dumps(config))
