"""The bundled demo models have the properties that their cards state; how they are trained."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

import poskernel_core as pk
from poskernel_core.models import catalog, curated
from poskernel_core.models.known import known_heads, telling_head
from poskernel_core.models.training import first_of_equals, training_run
from tools import train_demo

MODELS = ("demo-gpt2", "demo-attn-2l")
LEAST = {"demo-gpt2": (0.35, 0.7), "demo-attn-2l": (0.8, 0.8)}
"""The attention of the best previous-token head and of the best induction head."""
LARGEST = {"demo-rotary": 12e6, "demo-training": 20e6, "gpt2-small-layer0": 8.5e6}
"""Sizes in bytes of the other models that come with the project."""


@pytest.mark.parametrize("name", MODELS)
def test_what_the_cards_state(name, shipped):
    """In the results that come with the project, which are of these weights."""
    stated = json.loads((catalog.locate(name).directory / "measured.json").read_text("utf-8"))
    for topic, figure in (("", "previous_token"), ("induction", "induction")):
        figures = np.array(stated[figure])
        layer, head = np.unravel_index(figures.argmax(), figures.shape)
        assert f"L{layer}H{head}" == telling_head(name, topic)
        assert telling_head(name, topic) in known_heads(name)

    previous = pk.show("previous-token", name, engine=shipped).values["previous_mass"]
    np.testing.assert_allclose(previous, stated["previous_token"], atol=0.05)
    induction = pk.show("induction-scores", name, engine=shipped).values["induction"].max()
    assert abs(induction - np.max(stated["induction"])) < 0.12
    assert (True, True) == tuple(np.array([previous.max(), induction]) >= LEAST[name])
    etc = pk.show("etc", name, engine=shipped)
    near = min(etc.coordinates["query"].tolist(), key=lambda n: abs(n - stated["query"]))
    kinds = np.array(etc.select(query=near).text_of("kind"))
    assert (kinds == np.array(stated["kind"])).mean() >= 0.9
    assert {"local", "slow decay", "uniform"} == set(kinds.ravel())


@pytest.mark.parametrize(
    ("name", "largest"), [*dict.fromkeys(MODELS, 12e6).items(), *LARGEST.items()]
)
def test_size_and_card(name, largest):
    directory = Path(curated.DEMO, name)
    assert sum(file.stat().st_size for file in directory.rglob("*") if file.is_file()) < largest
    assert "license: mit" in (directory / "README.md").read_text("utf-8")


@pytest.mark.slow
def test_smooth_positions_need_negative_self_attention(shipped_engine, near_worker):
    """Without fast waves in W_pos, the previous-token head shuns its own token, as in the post.

    Position favours the own token over the previous one, content makes up for it, and a repeated
    token spoils it, in the numbers that come with the project; averaging W_pos in groups of ten
    costs next to nothing.
    """
    ranked = pk.show("previous-token", "demo-gpt2", engine=shipped_engine)
    assert shipped_engine.worker_pid is None
    lost, hurt = (
        pk.show("averaging", model, engine=shipped_engine, params={"loss_windows": 4}).values
        for model in MODELS
    )
    best = np.unravel_index(ranked.values["previous_mass"].argmax(), (4, 8))
    head = ranked.select(layer=int(best[0]), head=int(best[1]))
    assert "negative self-attention" == head.text_of("kind")
    assert "dark main diagonal" == head.text_of("diagonal")
    assert head.values["position_advantage"] < 0 < head.values["content_advantage"]
    assert head.values["repeated_mass"] < 0.6 * head.values["unrepeated_mass"]
    assert lost["loss_change"][2] < 0.02 < 0.1 < hurt["loss_change"][2]


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
