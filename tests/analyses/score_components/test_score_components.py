"""One score by what query and key are made of: plain loops, every family, a known head."""

from functools import cache

import numpy as np
import pytest
import torch

from poskernel_core.analyses.base import ExperimentContext
from poskernel_core.analyses.position_sources.experiment import NAMES
from poskernel_core.analyses.score_components import experiment
from poskernel_core.analyses.score_components.spec import ScoreComponents
from tests.support import Made, builders
from tests.support.builders.contextual import ask
from tests.support.builders.families import EVERY_MODEL
from tests.support.oracles_position_sources import Split
from tests.support.passes import loaded
from tests.support.refusals import refused

LENGTH, QUERY, KEY = 23, 19, 13
FAMILIES = ("llama", "gemma2", "bloom", "gpt-oss", "jamba")
"""Rotary positions, a soft cap, ALiBi, a sink, layers without heads."""


def components(path, ids, **params):
    asked = ScoreComponents.params(text="x", **params)
    context = ExperimentContext(loaded(path), np.asarray(ids), [], lambda each: [], False)
    return ScoreComponents().perform(context, {}, asked, lambda done, total: None)


@pytest.fixture(scope="module")
def dirs(tmp_path_factory):
    root = tmp_path_factory.mktemp("families")
    return Made(lambda name: EVERY_MODEL[name].build(root / name))


@cache
def tokens():
    return builders.random_ids(1, LENGTH, seed=11)


@pytest.mark.parametrize(
    ("name", "layer", "head"), [("gpt2", 2, 3), ("llama", 1, 4), ("gpt_neox", 2, 1)]
)
def test_parts_of_plain_transformers(dirs, name, layer, head):
    ids, cell = tokens(), f"L{layer}H{head}"
    found = components(dirs[name], ids, head=cell, query=QUERY, key=KEY, other=2)
    split = Split(dirs[name], ids.numpy(), layer)
    own = head * split.keys["MLP 0"].shape[1] // split.asked["MLP 0"].shape[1]
    for side, each in (("query", split.asked), ("key", split.keys)):
        assert [NAMES.get(part, part) for part in found.texts[f"{side}_names"]] == [*each]
    for key, value in ((KEY, "component_score"), (2, "other_component_score")):
        queries = np.array([part[0, head, QUERY] for part in split.asked.values()])
        keys = np.array([part[0, own, key] for part in split.keys.values()])
        table = split.scale * queries @ keys.T
        same = {"atol": 1e-6 * np.abs(table).sum(), "rtol": 0}
        np.testing.assert_allclose(found.values[value], table, **same)
        for margin, axis in (("query_margin", 1), ("key_margin", 0)):
            np.testing.assert_allclose(found.values[margin][:, key], table.sum(axis=axis), **same)


@pytest.mark.parametrize("name", FAMILIES)
def test_add_up_to_the_real_score(dirs, name):
    """And the softmax of the sums, after cap and bias, is the attention of plain transformers."""
    ids, layer = tokens(), loaded(dirs[name]).geometry.with_heads[-1]
    plain = builders.hf_eager_model(dirs[name])
    with torch.inference_mode():
        patterns = plain(ids, output_attentions=True, use_cache=False).attentions
    found = components(dirs[name], ids, head=f"L{layer}H2", query=QUERY).values
    bias = found.get("alibi_bias", 0.0)
    seen = np.isfinite(found["score"])
    for margin in ("query_margin", "key_margin"):
        largest = np.abs(found[margin]).sum(axis=0)[seen]
        sums = (found[margin].sum(axis=0) + bias)[seen]
        assert (np.abs(sums - found["score"][seen]) <= 1e-5 * largest).all()
    key = int(found["chosen_key"])
    table, whole = found["component_score"], np.abs(found["component_score"]).sum()
    for margin, axis in (("query_margin", 1), ("key_margin", 0)):
        np.testing.assert_allclose(found[margin][:, key], table.sum(axis=axis), atol=1e-9 * whole)
    real = patterns[loaded(dirs[name]).geometry.with_heads.index(layer)][0, 2, QUERY]
    cap, sink = {"gemma2": 1.7}.get(name), -np.inf
    sums = found["key_margin"].sum(axis=0)
    capped = cap * np.tanh(sums / cap) if cap else sums
    weights = np.exp(np.where(seen, capped + bias, -np.inf))
    if name == "gpt-oss":
        sink = plain.model.layers[layer].self_attn.sinks[2].item()
    weights = weights / (weights.sum() + np.exp(sink))
    np.testing.assert_allclose(weights, real[: QUERY + 1], atol=1e-5)
    np.testing.assert_allclose(found["attention"], real[: QUERY + 1], atol=1e-5)
    assert key == 1 + int(real[1 : QUERY + 1].argmax())


def test_mean_of_the_row(dirs):
    """The mean is over the visible keys from the skip on, never key 0; windows cut it."""
    ids = tokens()
    for name, skip, keys in (
        ("gpt2", 0, range(1, QUERY + 1)),
        ("gpt2", 5, range(5, QUERY + 1)),
        ("mistral", 2, range(QUERY - 6, QUERY + 1)),
    ):
        found = components(dirs[name], ids, head="L1H2", query=QUERY, skip=skip, key=QUERY).values
        mean = found["mean_component_score"]
        for margin, axis in (("query_margin", 1), ("key_margin", 0)):
            row = found[margin][:, list(keys)].mean(axis=1)
            np.testing.assert_allclose(mean.sum(axis=axis), row, atol=1e-9)
        assert [*keys] == np.flatnonzero(found["counted"]).tolist()


def test_last_token(dirs):
    """By default the query is the last token."""
    cut = components(dirs["llama"], tokens()[:, : QUERY + 1], head="L2H0")
    assert cut.values["chosen_query"] == QUERY


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"head": "L9H0"}, "A head is written"),
        ({"head": "L1H0", "query": LENGTH}, f"expected a query from 0 to {LENGTH - 1}, got 23"),
        ({"head": "L1H0", "query": 19, "key": 20}, "does not see a key at 20"),
        ({"head": "L1H0", "query": 19, "key": 12}, "expected one from 13 to 19"),
        ({"head": "L1H0", "query": 19, "other": 12}, "does not see a key at 12"),
    ],
)
def test_refused(dirs, params, told):
    with refused(told):
        components(dirs["mistral"], tokens(), **params)


def test_refused_models_and_layers(dirs, monkeypatch):
    with refused("compressed keys"):
        components(dirs["deepseek2"], tokens(), head="L1H0")
    with refused("no heads"):
        components(dirs["jamba"], tokens(), head="L0H0")
    monkeypatch.setattr(experiment, "MAX_NUMBERS", 2 * 70 * 22)
    with refused("up to 22 tokens, got 23"):
        components(dirs["gpt2"], tokens(), head="L1H0")


def test_by_way_of_the_store(tmp_path, dirs):
    """The text alone decides, not the corpus or its windows."""
    asked = {"text": "She sells sea shells on the sea shore.", "head": "L1H2"}
    found = ask(tmp_path, "score-components", dirs["gpt2"], asked, windows=3)
    assert found.words("tokens")[-1] == "."
    assert len(found.words("tokens")) == len(found.values["score"])


def test_counted_and_most_attended():
    visible = np.array([False, True, True, True])
    assert experiment.counted_keys(visible, 2).tolist() == [False, False, True, True]
    assert experiment.counted_keys(visible, 7).tolist() == visible.tolist()
    assert experiment.counted_keys(np.array([True]), 0).tolist() == [True]
    assert experiment.counted_keys(np.array([True, True]), 0).tolist() == [False, True]
    assert experiment.most_attended(np.array([0.9, 0.0, 0.04, 0.03])) == 2
    assert experiment.most_attended(np.array([1.0])) == 0
    assert experiment.most_attended(np.array([0.9, 0.0])) == 0


def test_a_head_that_looks_back(tmp_path):
    """A constructed head's score of the third token back comes from the positions of both alone."""
    path = builders.look_back(tmp_path / "back", 3)
    ids = builders.random_ids(1, LENGTH, seed=3)
    found = components(path, ids, head="L0H0", query=QUERY)
    names = found.texts["key_names"].tolist()
    table = found.values["component_score"] - found.values["mean_component_score"]
    at = names.index("position")
    assert found.values["chosen_key"] == QUERY - 3
    assert table[at, at] >= 0.99 * table.sum()
