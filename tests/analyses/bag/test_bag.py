"""The bag of tokens: extended embeddings and predictions, by plain loops and by calculation."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poskernel_core.analyses.bag.experiment import predicted
from poskernel_core.analyses.bag.experiment.bag import build_bag, listed_tokens
from poskernel_core.analyses.bag.experiment.neurons import VARIANTS, Quality
from poskernel_core.analyses.bag.params import BagParams
from poskernel_core.analyses.contextual_heads.experiment import content_weights
from poskernel_core.common.jackknife import jackknife
from tests.support import oracles
from tests.support.builders import START, VOCABULARY
from tests.support.builders import bag as made
from tests.support.builders.bag import study
from tests.support.builders.contextual import some_windows
from tests.support.oracles_first_layer import inside

LENGTH, QUERY, CONTEXTS = 17, 13, 5
ALL = np.arange(VOCABULARY)
# model, heads, start token, window
CASES = {
    "learned": ("gpt2", (1, 4), True, None),
    "grouped": ("llama", (0, 1, 5), True, None),
    "window": ("mistral", (2,), False, 7),
}
STRENGTHS = np.zeros((VOCABULARY, 3))
STRENGTHS[1:] = np.random.default_rng(11).uniform(-0.5, 0.5, size=(VOCABULARY - 1, 3))
STRENGTHS[START] = (0.5, 0.25, -0.25)
NEURONS = [{0: 1.5, 1: -2.0}, {2: 1.0}, {0: -1.0, 2: 3.0}, {}]
BIASES = [0.1, -0.2, 0.0, 0.3]


@pytest.fixture(scope="module", params=CASES)
def case(request, model_dirs):
    """A bag of some heads, the vocabulary in pieces; the same by plain loops; what both are of."""
    name, heads, start, window = CASES[request.param]
    windows = some_windows(7, LENGTH, start)
    subject, main, truth = made.studied(
        model_dirs[name], windows, CONTEXTS, heads, QUERY, start, window
    )
    params = BagParams(query=QUERY, first_windows=CONTEXTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content_weights, "ROWS", 97)
        yield subject, main, build_bag(subject, heads, params), truth


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """Directory of the model that the bag predicts without error."""
    path = tmp_path_factory.mktemp("bag") / "known"
    return made.reading(path, STRENGTHS, NEURONS, BIASES, direct=0.7)


def close(expected, found, rtol=2e-4, atol=2e-5):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


def test_extended_embeddings(case):
    _, _, bag, truth = case
    reads = np.stack([truth.read(neuron) for neuron in (0, 13)], axis=1)
    for by in ("token", "mean"):
        other = dataclasses.replace(bag, by=by)
        table, tokens = other.table(ALL), (0, 1, 57, 263, 292)
        assert (VOCABULARY, len(reads)) == table.shape
        for token in tokens:
            e = truth.embed(token, by)
            close(e, table[token], atol=1e-4)
            close(e @ reads, table[token] @ bag.readers()[:, [0, 13]], atol=2e-4)
    ids = torch.tensor([5, 3, 5])
    close(other.table(ids.numpy()), table[ids])


def test_predictions(case):
    _, _, bag, truth = case
    text = some_windows(1, 15, bag.start == 1, seed=31)[0].tolist()

    for kernel, by in itertools.product(predicted.KERNELS, predicted.SCALES):
        parts = predicted.predict(bag, torch.tensor(text), kernel, by)
        whole = parts.activation(bag)
        for n in (0, 1, 14):
            expected = truth.predict(text, n, kernel, by)
            for name in ("direct", "bag", "position", "others", "between"):
                close(getattr(expected, name), getattr(parts, name)[n], atol=2e-4)
            close(expected.scale, parts.scale[n])
            close(truth.activation(expected, 17), whole[n, 17], atol=5e-4)


def true_joint(truth, texts, n):
    """What the heads really write at a position, `[text, model]`: values by true attention."""
    seen, on = inside(truth.on.path, texts), truth.on
    d = len(truth.layer.outputs[0])
    slots = [slice(head * d, (head + 1) * d) for head in on.heads]
    return np.array([
        sum(row[n, s] @ truth.layer.outputs[h] for h, s in zip(on.heads, slots, strict=True))
        for row in seen.heads
    ])  # fmt: skip


def joint_numbers(true, found):
    """Cosine and both R2 over texts at one position."""
    cosine = [t @ p / np.sqrt((t @ t) * (p @ p)) for t, p in zip(true, found, strict=True)]
    spread = ((true - true.mean(axis=0)) ** 2).sum()
    about = (true - true.mean(axis=0)) - (found - found.mean(axis=0))
    error, centred = ((true - found) ** 2).sum(), (about**2).sum()
    return float(np.mean(cosine)), float(1 - error / spread), float(1 - centred / spread)


def test_quality(case):
    subject, _, bag, truth = case
    texts, n = subject.windows[:CONTEXTS], LENGTH - 1
    quality, seen = Quality(bag, LENGTH, 3), inside(truth.on.path, texts)
    for number, text in enumerate(texts):
        heads = torch.from_numpy(seen.heads[number]).float().reshape(LENGTH, *bag.layer.b_v.shape)
        quality.add(torch.from_numpy(text), heads, number)
    values, *without = quality.numbers()
    errors = {name: jackknife(np.stack([each[name] for each in without])) for name in values}

    true, names = true_joint(truth, texts, n), ("bag_cosine", "bag_r2", "bag_centred_r2")
    for place, variant in enumerate(itertools.product(predicted.KERNELS, predicted.SCALES)):
        parts = [truth.predict(text.tolist(), n, *variant) for text in texts]
        found = np.array([each.bag + each.position for each in parts])
        expected = joint_numbers(true, found)
        close(expected, [values[name][place, -1] for name in names], rtol=1e-3, atol=1e-4)
        for which, name in enumerate(names):
            spread = oracles.jackknife(
                CONTEXTS, lambda some, w=which, p=found: joint_numbers(true[some], p[some])[w]
            )
            close(spread, errors[name][place, -1], rtol=1e-2, atol=1e-4)
    assert [bag.start, 8 + bag.start // 2, n] == quality.places.tolist()
    assert (len(VARIANTS), 3) == values["bag_r2"].shape


@settings(max_examples=5)
@given(st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=40), st.booleans())
def test_known_model(known, texts, start):
    """Uniform heads without content: the prediction is the truth, and both are calculated."""
    text = np.array([START] * start + texts)[None]
    subject, _ = KEPT.setdefault(start, study(known, some_windows(5, 41, start), start))
    bag = build_bag(subject, (0, 2), BagParams(query=37))

    parts = predicted.predict(bag, torch.from_numpy(text[0]), "own")

    truth, scales = made.truth(STRENGTHS, NEURONS, text[0].tolist(), BIASES, direct=0.7)
    np.testing.assert_allclose(parts.scale, scales, rtol=1e-4)
    np.testing.assert_allclose(parts.activation(bag), truth, atol=2e-4)
    seen = inside(known, text).activation[0]
    np.testing.assert_allclose(seen, truth, atol=2e-4)


KEPT = {}


def test_listed_tokens(known):
    subject, _ = study(known, np.array([[0, 5, 7], [0, 7, 9], [0, 0, 9]]), True)
    assert [7, 9] == listed_tokens(subject, 2).tolist()
    assert [5, 7, 9] == listed_tokens(subject, 1).tolist()
    assert list(range(1, VOCABULARY)) == listed_tokens(subject, 0).tolist()
