"""The tool that trains demo models keeps checkpoints that are a run."""

import sys
from dataclasses import replace

import pytest
import torch

from poskernel_core.models import catalog
from poskernel_core.models.training import first_of_equals, training_run
from tests.server import ROOT


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
    """The first, and from 128 on two for each doubling."""
    kept = [step for step in range(3000) if tools[0].is_due(step)]

    assert [0, 128, 181, 256, 362, 512, 724, 1024, 1448, 2048, 2896] == kept


def test_a_training_leaves_a_run(tools, tmp_path, monkeypatch):
    """Each checkpoint loads as a model; the schedule tells steps and tokens; they differ."""
    checkpoints, files, recipes, windows, train = tools
    text = [" ".join(f"word{n}" for n in range(300))] * 3
    recipe = replace(
        recipes.RECIPES["demo-training"], heads=2, width=6, context=41, vocabulary=600,
        short_window=41, tokens_per_step=123,
    )  # fmt: skip
    tokenizer = windows.train_tokenizer(text, recipe.vocabulary)
    files.save_tokenizer(tokenizer, recipe.context, tmp_path)
    monkeypatch.setattr(checkpoints, "FIRST", 2)
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
    assert (2, 2, 41) == (last.geometry.n_layers, last.geometry.n_heads, last.geometry.n_ctx)
    assert torch.float32 == files.load_model(last.directory).transformer.wte.weight.dtype
