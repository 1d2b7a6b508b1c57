"""The tool that trains demo models keeps checkpoints that are a run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import poskernel_core as pk
from poskernel_core.models import catalog, curated
from poskernel_core.models.training import first_of_equals, training_run
from tools import train_demo


@pytest.mark.parametrize(
    ("name", "llama"),
    [
        ("demo-training", {}),
        ("demo-rotary", {"num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 5}),
    ],
)
def test_a_training_leaves_a_run(tmp_path, monkeypatch, name, llama):
    monkeypatch.setattr(train_demo, "TOKENS_PER_STEP", 123)
    text = [" ".join(f"word{n}" for n in range(300))] * 3
    recipe = replace(
        train_demo.RECIPES[name], heads=2, width=6, context=41, vocabulary=600,
        checkpoints=(0, 2), llama=llama,
    )  # fmt: skip
    stream = train_demo.prepare_tokenizer(text, recipe, tmp_path)
    torch.manual_seed(0)
    windows = train_demo.Windows(stream, recipe.vocabulary, 0)
    run = train_demo.Run(recipe, train_demo.build_model(recipe), windows, 0)
    run.train(0.01, tmp_path)
    train_demo.keep_checkpoint(run.model, recipe, tmp_path, run.steps)

    found = training_run(str(tmp_path))
    steps = [each.step for each in found.checkpoints]
    assert [0, 2] == steps[:2]
    assert run.steps == steps[-1]
    assert [123 * step for step in steps] == [each.tokens for each in found.checkpoints]
    assert {} == first_of_equals(found)
    geometry = pk.load(str(tmp_path), device="cpu").geometry
    assert (recipe.layers, 2, 41) == (geometry.n_layers, geometry.n_heads, geometry.n_ctx)


def test_the_bundled_rotary_run():
    run = training_run("demo-rotary")
    geometry = catalog.locate("demo-rotary").geometry
    assert ("rotary", 4, 8) == (geometry.scheme, geometry.n_layers, geometry.n_heads)
    assert [256, 512, 1024, 1448] == [each.step for each in run.checkpoints][:-1]
    assert {} == first_of_equals(run)


def test_the_bundled_run():
    run = training_run("demo-training")
    folder = Path(curated.DEMO, "demo-training")

    assert 0 == run.checkpoints[0].step
    assert all(each.tokens is not None for each in run.checkpoints)
    assert {} == first_of_equals(run)
    for each in run.checkpoints:
        with safe_open(folder / each.revision / "model.safetensors", framework="pt") as weights:
            assert {torch.bfloat16} == {weights.get_tensor(name).dtype for name in weights.keys()}  # noqa: SIM118
    told = json.loads((folder / "schedule.json").read_text("utf-8"))
    assert {each.revision for each in run.checkpoints} == set(told["checkpoints"])
