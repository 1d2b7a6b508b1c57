"""One neuron: its tokens and relatives, and its course along a text."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.analyses.bag.experiment.neuron import agreement, correlations
from poskernel_core.analyses.bag.neuron import Neuron, NeuronTrace
from tests.support import oracles_bag as oracle
from tests.support.builders import START, VOCABULARY
from tests.support.builders.contextual import perform
from tests.support.oracles_first_layer import inside
from tests.support.refusals import refused

PARTS = ("bag", "position", "others", "direct")


def test_neuron(random_bag, bag_params):
    subject, main, truth = random_bag
    asked = bag_params | {"neuron": 7, "top_k": 3, "min_count": 0}
    found = perform(Neuron, subject, main, **asked)

    table = np.array([truth.embed(token) for token in range(1, VOCABULARY)])
    columns = (table @ truth.reads).T
    np.testing.assert_allclose(found.values["contribution"], columns[7], atol=1e-3)
    expected = [np.corrcoef(column, columns[7])[0, 1] for column in columns]
    np.testing.assert_allclose(found.values["related"], expected, atol=1e-4)
    w_out = inside(truth.on.path, subject.windows[:1]).w_out
    sizes = np.sqrt((w_out**2).sum(axis=1))
    np.testing.assert_allclose(
        found.values["output_cosine"], w_out @ w_out[7] / sizes / sizes[7], atol=1e-5
    )
    assert found.values["bias"] == pytest.approx(truth.layer.b_in[7])
    order = np.argsort(columns[7])
    for end, some in (("top", order[::-1][:3]), ("bottom", order[:3])):
        np.testing.assert_allclose(found.values[f"{end}_value"], columns[7][some], atol=1e-3)
        assert subject.decode((some + 1).tolist()) == found.words(f"{end}_words")


@given(st.integers(0, 2**20), st.integers(2, 31), st.floats(0.01, 100))
def test_correlations(seed, tokens, factor):
    generator = np.random.default_rng(seed)
    table, readers = generator.normal(3, 1, size=(tokens, 7)), generator.normal(size=(7, 5))
    readers[:, 3], readers[:, 4] = factor * readers[:, 1], -factor * readers[:, 1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("poskernel_core.analyses.bag.experiment.neuron.ROWS", tokens // 2)
        found = correlations(torch.tensor(table), torch.tensor(readers), 1).numpy()

    assert (np.abs(found) <= 1).all()
    np.testing.assert_allclose(found[[1, 3, 4]], [1, 1, -1], atol=1e-6)
    expected = np.corrcoef((table @ readers).T)[1]
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("given_by", ["window", "text", "item"])
def test_trace(random_bag, bag_params, given_by):
    subject, main, truth = random_bag
    windows, typed = subject.windows, " she sells sea shells"
    named = {"window": 4}, {"text": f"{typed}\n---\nother"}, {"item": "Genesis 24"}
    chosen = dict(zip(("window", "text", "item"), named, strict=True))[given_by]
    found = perform(NeuronTrace, subject, main, **bag_params, neuron=3, **chosen)

    text = windows[4].tolist()
    if given_by == "text":
        text = [START, *subject.encode(f"{typed}\n")]
    if given_by == "item":
        text = [START, *subject.encode("And Abraham was old, and well stricken in age")][:19]
    assert subject.decode(text) == found.words("tokens")[: len(text)]
    if given_by != "window":
        return
    true = inside(truth.on.path, np.array([text])).activation[0, :, 3]
    np.testing.assert_allclose(found.values["true"][: len(text)], true, atol=1e-4)
    check_parts(found.values, truth, text)
    fit = oracle.agreement(
        found.values["true"][1:].tolist(), found.values["predicted"][1:].tolist()
    )
    for name, expected in fit.items():
        assert expected == pytest.approx(float(found.values[name]), abs=1e-5), name
    rest = found.values["true"] - sum(found.values[name] for name in PARTS[1:])
    alone = oracle.agreement(rest[1:].tolist(), found.values["bag"][1:].tolist())["r2"]
    assert alone == pytest.approx(float(found.values["r2_of_bag"]), abs=1e-4)


def check_parts(values, truth, text):
    """The parts of the prediction, and what each token adds wherever the bag holds it fully."""
    norm, read = truth.layer.norms[1], truth.layer.w_in[:, 3]
    for n in range(len(text)):
        parts = truth.predict(text, n)
        for name in PARTS:
            expected = truth.through(parts, getattr(parts, name), 3)
            if name == "direct":
                expected += norm[1] @ read + truth.layer.b_in[3]
            assert expected == pytest.approx(float(values[name][n]), abs=5e-4), (name, n)
        if n:
            added = truth.embed(text[n]) @ truth.read(3)
            assert added == pytest.approx(float(values["contribution"][n]), abs=5e-4)
    assert np.isnan(values["contribution"][0])
    whole = sum(values[name] for name in PARTS)
    np.testing.assert_allclose(values["predicted"], whole, atol=1e-5)


def test_correlation_is_at_most_1():
    for seed in range(29):
        true = np.random.default_rng(seed).normal(size=41).astype(np.float32)
        assert 1 >= float(agreement(true, 3 * true, true)["correlation"]) > 1 - 1e-6


@pytest.mark.parametrize(
    ("true", "predicted", "expected"),
    [
        ([1.0, -1.0, 3.0, 1.0], [1.0, 1.0, 3.0, -1.0], (0.0, 0.0, 0.5, 0.5)),
        ([2.0, 2.0], [1.0, -3.0], (math.nan, -2.25, math.nan, 0.5)),
        ([1.0, 2.0], [4.0, 4.0], (-25.0, -25.0, math.nan, 1.0)),
    ],
)
def test_agreement_by_hand(true, predicted, expected):
    found = agreement(np.array(true), np.array(predicted), np.zeros(len(true)))
    names = ("r2", "r2_of_bag", "correlation", "sign_agreement")
    assert expected == pytest.approx([float(found[name]) for name in names], nan_ok=True)


def test_refused(random_bag, bag_params):
    subject, main, _ = random_bag
    for experiment, params, words in (
        (Neuron, {"neuron": 29}, r"No neuron 29: expected 0 to 28"),
        (NeuronTrace, {"neuron": 99}, "No neuron 99"),
        (NeuronTrace, {"window": 7}, r"No window 7: expected 0 to 6"),
        (NeuronTrace, {"item": "Genesis 99"}, "No chapter 'Genesis 99'"),
        (NeuronTrace, {"item": "Genesis 24", "text": "a"}, "got both: give one"),
        (NeuronTrace, {"text": " "}, "a text of 3 tokens or more"),
    ):
        with refused(words):
            perform(experiment, subject, main, **bag_params, **params)
    bare = dataclasses.replace(subject, encode=None)
    with refused("A text needs a tokenizer"):
        perform(NeuronTrace, bare, main, **bag_params, text="some words")
