"""Searching the bag: nearest tokens and the neurons of words, by plain loops and by design."""

import dataclasses
import math

import numpy as np
import pytest

from poskernel_core.analyses.bag.neuron import ExtendedEmbedding, WordNeurons
from tests.support import oracles
from tests.support.builders import VOCABULARY
from tests.support.builders.contextual import perform
from tests.support.refusals import refused


def cosine(a, b):
    return oracles.dot(a, b) / math.sqrt(oracles.dot(a, a) * oracles.dot(b, b))


def test_nearest_of_random_weights(random_bag, bag_params):
    subject, main, truth = random_bag
    asked = bag_params | {"word": " head", "top_k": 5, "min_count": 0}
    found = perform(ExtendedEmbedding, subject, main, **asked)

    word, tokens = subject.single_id(" head"), list(range(1, VOCABULARY))
    tables = [[truth.embed(t).tolist() for t in tokens], truth.layer.embedding[1:].tolist()]
    cosines = []
    for table in tables:
        middle = oracles.mean_row(table)
        rows = [[x - m for x, m in zip(row, middle, strict=True)] for row in table]
        cosines.append([cosine(row, rows[word - 1]) for row in rows])
    order = [int(i) for i in np.argsort(cosines[0])[::-1] if i != word - 1][:5]
    assert [tokens[i] for i in order] == found.values["nearest"].tolist()
    for name, column in zip(("cosine", "plain_cosine"), cosines, strict=True):
        np.testing.assert_allclose(found.values[name], [column[i] for i in order], atol=1e-4)
    assert subject.decode([tokens[i] for i in order]) == found.words("words")
    lengths = np.linalg.norm(tables[0], axis=1)
    assert lengths[word - 1] == pytest.approx(float(found.values["length"]), rel=1e-4)
    shorter = (np.delete(lengths, word - 1) < lengths[word - 1]).mean()
    assert shorter == pytest.approx(float(found.values["length_rank"]))


def test_scores_of_random_weights(random_bag, bag_params):
    subject, main, truth = random_bag
    asked = bag_params | {"words": "sells  ok\nthe", "top_k": 4, "min_count": 0}
    found = perform(WordNeurons, subject, main, **asked)

    table = np.array([truth.embed(token) for token in range(1, VOCABULARY)]) @ truth.reads
    ids = [t for word in (" sells", " ok", " the") for t in subject.encode(word)]
    assert len(ids) > 3
    assert subject.decode(ids) == found.words("words")
    expected = np.zeros((len(ids), table.shape[1]))
    for row, token in enumerate(ids):
        for j, column in enumerate(table.T):
            expected[row, j] = (column[token - 1] - column.mean()) / column.std(ddof=1)
    np.testing.assert_allclose(found.values["word_score"], expected, atol=2e-3)
    np.testing.assert_allclose(found.values["score"], expected.mean(axis=0), atol=2e-3)
    order = found.values["score"].argsort()
    assert order[::-1][:4].tolist() == found.values["for"].tolist()
    assert order[:4].tolist() == found.values["against"].tolist()


def test_refused(random_bag, bag_params):
    """Also a model without a tokenizer, and texts that hold nothing but the word."""
    subject, main, _ = random_bag
    bare = dataclasses.replace(subject, encode=None, single_id=None)
    alone = dataclasses.replace(subject, windows=np.full((2, 19), subject.single_id(" sea")))
    for on, experiment, params, told in (
        (subject, ExtendedEmbedding, {"word": " two words"}, "one token of"),
        (subject, ExtendedEmbedding, {"word": " sea", "min_count": 999}, "No token occurs 999"),
        (subject, WordNeurons, {"words": " \n "}, r"Expected words"),
        (subject, WordNeurons, {"words": "sea", "min_count": 999}, "No token occurs 999 times"),
        (subject, WordNeurons, {"words": "sea", "heads": "L1H0"}, "L1H0"),
        (bare, ExtendedEmbedding, {"word": " sea"}, "tokenizer"),
        (bare, WordNeurons, {"words": "a"}, "tokenizer"),
        (alone, ExtendedEmbedding, {"word": " sea", "min_count": 1}, "."),
    ):
        with refused(told):
            perform(experiment, on, main, **(bag_params | params))
    one = perform(WordNeurons, alone, main, **(bag_params | {"words": "sea", "min_count": 1}))
    assert np.isnan(one.values["score"]).all()  # one token has no spread
