"""Contextual neurons: what drives them, by plain loops; two contexts that the bag tells apart."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import poskernel_core as pk
from poskernel_core.analyses.bag.contextual_neurons import ContextualNeurons
from poskernel_core.analyses.bag.experiment import vocabulary
from poskernel_core.analyses.bag.experiment.bag import build_bag
from poskernel_core.analyses.bag.neuron import NeuronParams
from poskernel_core.analyses.bag.params import BagParams
from poskernel_core.common.views import Gathered
from poskernel_core.engine.engine import describe_run
from tests.support import oracles
from tests.support import oracles_bag as oracle
from tests.support.builders import START, VOCABULARY
from tests.support.builders import bag as made
from tests.support.builders.bag import study
from tests.support.builders.contextual import perform
from tests.support.oracles_first_layer import inside
from tests.support.refusals import refused

QUERY, CONTEXTS = 11, 5
FIRST, SECOND = range(1, 140), range(140, VOCABULARY)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory):
    """Directory of a model whose tokens are of two groups, and texts of either in turns.

    Neuron 0 fires in the first group's texts, neuron 1 in the others; neuron 2 reads nothing.
    """
    strengths = np.zeros((VOCABULARY, 2))
    strengths[FIRST, 1], strengths[SECOND, 1] = 0.5, -0.5
    neurons, biases = [{1: 2.0}, {1: -3.0}, {}], [0.1, -0.1, -0.3]
    path = tmp_path_factory.mktemp("contexts") / "model"
    made.reading(path, strengths, neurons, biases)
    rows = np.random.default_rng(3)
    pools = [rows.choice(pool, size=(4, 41)) for pool in (FIRST, SECOND)]
    windows = np.stack(pools, axis=1).reshape(8, 41)
    windows[:, 0] = START
    return path, windows


def predictions(truth, texts, kernel):
    """Predicted pre-activations and what the bag adds, `[text][pos][neuron]`, by the oracle."""
    every, whole, added = slice(None), [], []
    for text in texts.tolist():
        parts = [truth.predict(text, n, kernel) for n in range(truth.on.start, len(text))]
        whole.append([truth.activation(p, every) for p in parts])
        added.append([truth.through(p, p.bag, every) for p in parts])
    return np.array(whole), np.array(added)


def test_every_neuron(random_bag, bag_params):
    subject, main, truth = random_bag
    params = {"min_count": 0, "top_k": 3, "n_positions": 2, "kernel": "common"}
    found = perform(ContextualNeurons, subject, main, **bag_params, **params)
    texts = subject.windows[:CONTEXTS]
    whole, added = predictions(truth, texts, "common")
    true = inside(truth.on.path, texts).activation[:, 1:]

    for j in range(true.shape[2]):
        numbers = (true[:, :, j], whole[:, :, j], added[:, :, j])
        expected = oracle.moments(*numbers)
        left = [oracle.moments(*(np.delete(x, t, 0) for x in numbers)) for t in range(CONTEXTS)]
        for value, number in expected.items():
            here = found.values[value][j], found.errors[value][j]
            spread = oracles.jackknife_se([each[value] for each in left])
            assert (number, spread) == pytest.approx(here, rel=5e-3, abs=2e-4), (value, j)
    check_vocabulary(found, truth)
    check_settings(found, truth)


def check_vocabulary(found, truth):
    """Both ends, mean and spread of a few neurons' contributions over all ordinary tokens."""
    table = np.array([truth.embed(token) for token in range(1, VOCABULARY)])
    for j in (0, 19):
        column = table @ truth.read(j)
        order = np.argsort(column)
        assert (order[::-1][:3] + 1).tolist() == found.values["top"][j].tolist()
        assert (order[:3] + 1).tolist() == found.values["bottom"][j].tolist()
        ends = (column[order[::-1][:3]], column[order[:3]])
        for name, expected in zip(("top", "bottom"), ends, strict=True):
            np.testing.assert_allclose(found.values[f"{name}_contribution"][j], expected, rtol=1e-3)
        assert column.mean() == pytest.approx(found.values["contribution_mean"][j], abs=1e-3)
        assert column.std() == pytest.approx(found.values["contribution_std"][j], rel=3e-3)


def check_settings(found, truth):
    """Kernel at the query, percentiles of the scales, medians, and what they stand for."""
    kernel = np.mean([rows[QUERY] for rows in truth.kernels], axis=0)[: QUERY + 1]
    np.testing.assert_allclose(found.values["kernel"], kernel, atol=1e-5)
    for scales, row in zip((truth.first, truth.second), found.values["norm_scale"], strict=True):
        flat = sorted(1 / x for text in scales for x in text)
        assert (flat[0], flat[-1]) == pytest.approx((row[0], row[-1]), rel=1e-5)
        assert np.median(flat) == pytest.approx(row[2], rel=1e-5)
    np.testing.assert_allclose(found.values["denominator"], truth.denominators, rtol=1e-4)
    assert list(truth.on.heads) == found.coordinates["chosen"].tolist()
    assert [f"L0H{head}" for head in truth.on.heads] == found.words("heads")
    for end in ("top", "bottom"):
        assert found.values[end].shape == found.texts[f"{end}_words"].shape


def test_two_contexts(contexts):
    path, windows = contexts
    subject, main = study(path, windows)

    found = perform(
        ContextualNeurons, subject, main, query=37, first_windows=8, top_k=7, min_count=0
    )

    values = found.values
    assert ["L0H0", "L0H2"] == found.words("heads")
    assert [0.5, 0.5, 0] == values["fires"].tolist()
    assert [1, 1, 1] == values["sign_agreement"].tolist()
    np.testing.assert_allclose(values["r2"][:2], 1, atol=1e-4)
    np.testing.assert_allclose(values["drive_share"][:2], 1, atol=0.02)
    assert values["drive"][1] == pytest.approx(1.5 * values["drive"][0], rel=1e-4)
    assert pytest.approx(values["drive"][2]) == 0
    assert set(values["top"][0].tolist()) <= set(FIRST)
    assert set(values["bottom"][0].tolist()) <= set(SECOND)
    assert set(values["top"][1].tolist()) <= set(SECOND)
    for name in ("bag_cosine", "bag_r2", "bag_centred_r2"):
        np.testing.assert_allclose(values[name][:, 1:], 1, atol=1e-3)
    words = subject.decode(values["top"][1].tolist())
    assert words == found.texts["top_words"][1].tolist()
    told = next(line for line in found.words("strongest") if "neuron 1, top" in line)
    assert told.startswith(f"neuron 1, top: {words[0]!r} ")


@given(st.integers(1, 60), st.integers(1, 23), st.integers(1, 7), st.integers(0, 2**20))
def test_ends(cells, tokens, listed, seed):
    """In blocks of at most so many numbers, or of one neuron."""
    generator = np.random.default_rng(seed)
    table, readers = generator.normal(size=(tokens + 1, 5)), generator.normal(size=(5, 11))
    whole, topk, sizes = table @ readers, torch.Tensor.topk, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "CELLS", cells)
        patch.setattr(
            torch.Tensor,
            "topk",
            lambda x, *a, **more: sizes.append(x.numel()) or topk(x, *a, **more),
        )
        found = vocabulary.ends(torch.tensor(table), torch.tensor(readers), listed)

    listed, order = min(listed, tokens + 1), whole.argsort(axis=0).T
    np.testing.assert_allclose(found["contribution_mean"], whole.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(found["contribution_std"], whole.std(axis=0, ddof=1), atol=1e-12)
    for name, places in (("top", order[:, ::-1]), ("bottom", order)):
        np.testing.assert_array_equal(found[name], places[:, :listed])
        ends = np.take_along_axis(whole.T, places[:, :listed], axis=1)
        np.testing.assert_allclose(found[f"{name}_contribution"], ends)
    assert 2 * whole.size == sum(sizes)
    assert max(sizes) <= max(cells, tokens + 1)


def test_the_kept_bag(contexts):
    path, windows = contexts
    subject, main = study(path, windows)
    asked = {"query": 37, "first_windows": 4}

    def bag(heads=(0, 2), on=subject, mean=main, **changes):
        on = dataclasses.replace(on, statistics={"main": mean})
        return build_bag(on, heads, BagParams(**(asked | changes)))

    first = bag()
    assert first is bag()
    one = NeuronParams(neuron=1, min_count=3, **asked)  # all questions stand on one bag
    assert first is build_bag(subject, (0, 2), one)
    assert subject.model.notes["bag"][1] is first
    changes = [{"token": " she"}, {"query": 36}, {"scale": "mean"}, {"heads": (0,)}]
    for change in [*changes, {"first_windows": 3}]:
        assert bag() is not bag(**change)
    fewer = dataclasses.replace(subject, windows=windows[:4])
    other = pk.run_pass(subject.model, windows[:4], gather=("keys",))
    assert bag() is not bag(on=fewer, mean=other)
    assert "mean" == bag(scale="mean").by
    moved = Gathered(main.header, {"keys": {"mean_keys": main.layer(0)["mean_keys"][None] + 0.5}})
    assert bag() is not bag(mean=moved)  # of equal texts
    without = bag(on=dataclasses.replace(subject, start_token=False))
    assert [1, 0] == [bag().start, without.start]


@pytest.mark.parametrize("query", [41, 1000])
def test_position_refused(contexts, query):
    run, question = describe_run(str(contexts[0])), ContextualNeurons()
    with refused(rf"from 1 to 40, got {query}\.$"):
        question.canonical(run, question.params(query=query))
    assert run == question.canonical(run, question.params(query=40))
    keys = run.model_copy(update={"gather": ("keys",)})
    assert {"main": keys} == question.needs(run, question.params(query=40))


def test_refused(contexts, random_bag):
    with refused("No head of layer 0 is contextual"):
        perform(ContextualNeurons, *study(*contexts), query=3)
    subject, main, _ = random_bag
    for params, words in (
        ({"heads": "L0H1, L1H0"}, r"heads of layer 0, got 'L0H1, L1H0'"),
        ({"heads": "L0H9"}, "L0H9"),
        ({"heads": "L0H1", "min_count": 10_000}, "No token occurs 10000 times"),
        ({"heads": "L0H1", "token": " the word"}, "one token of"),
    ):
        with refused(words):
            perform(ContextualNeurons, subject, main, query=9, **params)
    with refused("needs a tokenizer"):
        perform(ContextualNeurons, dataclasses.replace(subject, single_id=None), main, query=9)
