"""The tool that trains demo models keeps checkpoints that are a run."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from poskernel_core.models import catalog
from poskernel_core.models.training import first_of_equals, training_run
from tests.support.server import ROOT


@pytest.fixture(scope="module")
def tools():
    """The tool's modules, which find each other beside them."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import demo_checkpoints
        import demo_files
        import demo_recipes
        import demo_windows
        import train_demo
    finally:
        sys.path.pop(0)
    return demo_checkpoints, demo_files, demo_recipes, demo_windows, train_demo


def test_steps_that_are_kept(tools):
    """Evenly on a logarithmic axis, by factors of 4, 2, and of the root of 2 around 4,096."""
    kept = tools[2].RECIPES["demo-training"].checkpoints
    assert [round(2048 * 2 ** (k / 4)) for k in (2, 3, 4, 5, 6)] == [*kept[4:9]]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("demo-training", {}), ("demo-rotary", {"key_heads": 1, "head_width": 4, "inner": 5})],
)
def test_a_training_leaves_a_run(tools, tmp_path, name, sizes):
    checkpoints, files, recipes, windows, train = tools
    text = [" ".join(f"word{n}" for n in range(300))] * 3
    recipe = replace(
        recipes.RECIPES[name], heads=2, width=6, context=41, vocabulary=600,
        short_window=41, tokens_per_step=123, checkpoints=(0, 2), **sizes,
    )  # fmt: skip
    tokenizer = windows.train_tokenizer(text, recipe.vocabulary)
    files.save_tokenizer(tokenizer, recipe.context, tmp_path)
    torch.manual_seed(0)
    source = windows.Windows(windows.encode(tokenizer, text), recipe, 0)
    model = recipes.build_model(recipe)
    run = train.Run(recipe, model, source, tmp_path, 0.01, "cpu", 0, checkpoints=True)
    train.train(run)

    found = training_run(str(tmp_path))
    steps = [each.step for each in found.checkpoints]
    assert [0, 2] == steps[:2]
    assert run.steps == steps[-1]
    assert [123 * step for step in steps] == [each.tokens for each in found.checkpoints]
    assert {} == first_of_equals(found)
    last = catalog.locate(str(tmp_path))
    assert checkpoints.last_checkpoint(tmp_path) == last.directory
    assert (recipe.layers, 2, 41) == (
        last.geometry.n_layers, last.geometry.n_heads, last.geometry.n_ctx,
    )  # fmt: skip
    loaded = files.load_model(last.directory)
    assert torch.float32 == loaded.get_input_embeddings().weight.dtype


def test_the_bundled_rotary_run():
    run, folder = training_run("demo-rotary"), Path(catalog.DEMO, "demo-rotary")
    geometry = catalog.locate("demo-rotary").geometry
    assert ("rotary", 4, 8) == (geometry.scheme, geometry.n_layers, geometry.n_heads)
    assert [256, 512, 1024, 1448] == [each.step for each in run.checkpoints][:-1]
    assert {} == first_of_equals(run)
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) < 12e6


def test_the_bundled_run():
    """Checkpoints of one training in 16 bits, small enough to come with the project."""
    run = training_run("demo-training")
    folder = Path(catalog.DEMO, "demo-training")

    assert 0 == run.checkpoints[0].step
    assert all(each.tokens is not None for each in run.checkpoints)
    assert {} == first_of_equals(run)
    for each in run.checkpoints:
        with safe_open(folder / each.revision / "model.safetensors", framework="pt") as weights:
            assert {torch.bfloat16} == {weights.get_tensor(name).dtype for name in weights.keys()}  # noqa: SIM118
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) < 20e6
    assert "license: mit" in (folder / "README.md").read_text("utf-8")
    told = json.loads((folder / "schedule.json").read_text("utf-8"))
    assert {each.revision for each in run.checkpoints} == set(told["checkpoints"])
