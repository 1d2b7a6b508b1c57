"""Searching the bag: nearest tokens and the neurons of words, by plain loops and by design."""

import dataclasses
import math

import numpy as np
import pytest

from poskernel_core import Execution, Store
from poskernel_core.analyses.bag.experiment import bag as bag_module
from poskernel_core.analyses.bag.search import ExtendedEmbedding, WordNeurons
from poskernel_core.common.specs import CorpusSpec, Request
from poskernel_core.data import corpora
from poskernel_core.engine import execute
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.plan import make_plan
from poskernel_core.engine.provenance import from_entry
from poskernel_core.passes.worker_context import WorkerContext
from tests.support import oracles
from tests.support.builders import VOCABULARY
from tests.support.builders import bag as made
from tests.support.builders.bag import study
from tests.support.builders.contextual import perform, some_windows
from tests.support.refusals import refused

SEA, LAND = (" sea", " shells", " she", " se"), (" head", " position", " and", " pos")


@pytest.fixture(scope="module")
def words(model_dirs, tmp_path_factory):
    """Directory of a model with words of two contexts, and of which words they are.

    Neuron 0 fires for the first, neuron 1 for the second, neuron 2 for neither.
    """
    strengths = np.random.default_rng(7).normal(0, 0.02, size=(VOCABULARY, 3))
    tokenizer, _ = study(model_dirs["gpt2"], some_windows(2, 11))
    for source, group in enumerate((SEA, LAND)):
        for place, word in enumerate(group):
            strengths[tokenizer.single_id(word), source] = 0.5 + 0.05 * place
    neurons = [{0: 1.0, 1: -1.0}, {0: -1.0, 1: 1.0}, {2: 1.0}]
    return made.reading(tmp_path_factory.mktemp("words") / "model", strengths, neurons), strengths


@pytest.fixture(scope="module")
def random_bag(model_dirs):
    """What experiments on random weights work on, and the same bag by plain loops."""
    return made.studied(model_dirs["gpt2"], some_windows(7, 19), 5, (1, 3), 11)


def asked(experiment, subject, main, **params):
    return perform(experiment, subject, main, **({"query": 37, "min_count": 0} | params))


def cosine(a, b):
    return oracles.dot(a, b) / math.sqrt(oracles.dot(a, a) * oracles.dot(b, b))


def test_neurons_of_words(words):
    subject, main = study(words[0], some_windows(4, 41))
    for group, first, last in ((SEA, 0, 1), (LAND, 1, 0)):
        found = asked(WordNeurons, subject, main, words="".join(group), top_k=3)
        assert list(group) == found.words("words")
        assert [first, 2, last] == found.values["for"].tolist()
        assert [last, 2, first] == found.values["against"].tolist()
        assert (4, 3) == found.values["word_score"].shape
        assert (found.values["word_score"][:, first] > 3).all()
        assert (found.values["word_score"][:, last] < -3).all()
        assert np.abs(found.values["score"][2]) < 3


def test_nearest(words):
    subject, main = study(words[0], some_windows(4, 41))
    found = asked(ExtendedEmbedding, subject, main, word=" sea", top_k=3)

    assert {" shells", " she", " se"} == set(found.words("words"))
    assert (found.values["cosine"] > 0.99).all()
    lengths = np.sqrt(2 * (words[1] ** 2).sum(axis=1))
    own = lengths[subject.single_id(" sea")]
    assert own == pytest.approx(float(found.values["length"]), rel=1e-4)
    shorter = np.delete(lengths[1:], subject.single_id(" sea") - 1) < own
    assert shorter.mean() == pytest.approx(float(found.values["length_rank"]))


def test_nearest_of_random_weights(random_bag):
    subject, main, truth = random_bag
    params = {"query": 11, "first_windows": 5, "heads": "L0H1,L0H3", "word": " head", "top_k": 5}
    found = asked(ExtendedEmbedding, subject, main, **params)

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


def test_rare_tokens(random_bag):
    subject, main, truth = random_bag
    windows = np.where(subject.windows > 20, subject.windows % 20 + 1, subject.windows)
    fewer = dataclasses.replace(subject, windows=windows)
    counts = np.bincount(windows.ravel(), minlength=VOCABULARY)
    common = [t for t in range(1, VOCABULARY) if counts[t] >= 4]
    params = {"heads": "L0H1", "query": 11, "min_count": 4, "word": " head", "top_k": 1000}
    found = asked(ExtendedEmbedding, fewer, main, **params)

    assert 0 == counts[subject.single_id(" head")]
    assert sorted(common) == sorted(found.values["nearest"].tolist())
    plain = truth.layer.embedding[[subject.single_id(" head"), *common]]
    rows = plain - plain.mean(axis=0)
    expected = {t: cosine(row, rows[0]) for t, row in zip(common, rows[1:].tolist(), strict=True)}
    for token, here in zip(found.values["nearest"], found.values["plain_cosine"], strict=True):
        assert expected[int(token)] == pytest.approx(float(here), abs=1e-5)


def test_scores_of_random_weights(random_bag):
    subject, main, truth = random_bag
    params = {"query": 11, "first_windows": 5, "heads": "L0H1 L0H3", "words": "sells  ok\nthe"}
    found = asked(WordNeurons, subject, main, top_k=4, **params)

    table = np.array([truth.embed(token) for token in range(1, VOCABULARY)]) @ truth.reads
    ids = [t for word in (" sells", " ok", " the") for t in subject.encode(word)]
    assert len(ids) > 3
    expected = np.zeros((len(ids), table.shape[1]))
    for row, token in enumerate(ids):
        for j, column in enumerate(table.T):
            expected[row, j] = (column[token - 1] - column.mean()) / column.std(ddof=1)
    np.testing.assert_allclose(found.values["word_score"], expected, atol=2e-3)
    np.testing.assert_allclose(found.values["score"], expected.mean(axis=0), atol=2e-3)
    order = found.values["score"].argsort()
    assert order[::-1][:4].tolist() == found.values["for"].tolist()
    assert order[:4].tolist() == found.values["against"].tolist()


@pytest.mark.parametrize(
    ("experiment", "params", "message"),
    [
        (ExtendedEmbedding, {"word": " two words"}, "one token of"),
        (ExtendedEmbedding, {"word": " sea", "min_count": 999}, "No token occurs 999 times"),
        (WordNeurons, {"words": " \n "}, r"Expected words"),
        (WordNeurons, {"words": "sea", "min_count": 999}, "No token occurs 999 times"),
        (WordNeurons, {"words": "sea", "heads": "L1H0"}, "L1H0"),
    ],
)
def test_refused(words, experiment, params, message):
    subject, main = study(words[0], some_windows(2, 41))
    with refused(message):
        asked(experiment, subject, main, **params)


def test_other_subjects_are_refused(words):
    """A model without a tokenizer; texts that hold nothing but the word."""
    subject, main = study(words[0], some_windows(2, 41))
    bare = dataclasses.replace(subject, encode=None, single_id=None)
    alone = dataclasses.replace(subject, windows=np.full((2, 41), subject.single_id(" sea")))
    for on, experiment, params, told in (
        (bare, ExtendedEmbedding, {"word": " sea"}, "tokenizer"),
        (bare, WordNeurons, {"words": "a"}, "tokenizer"),
        (alone, ExtendedEmbedding, {"word": " sea", "min_count": 1}, "."),
    ):
        with refused(told):
            asked(experiment, on, main, **params)


def test_one_token_listed(words):
    subject, main = study(words[0], some_windows(2, 41))
    alone = dataclasses.replace(subject, windows=np.full((2, 41), 7))
    found = asked(WordNeurons, alone, main, words="sea", min_count=1, heads="L0H0")
    assert np.isnan(found.values["score"]).all()


def test_asked_of_one_context(model_dirs, tmp_path):
    store = Store(tmp_path / "one")
    both, scores = WorkerContext(store), []
    params = {"query": 31, "first_windows": 3, "words": "sea head", "heads": "L0H0", "min_count": 0}
    for windows in (7, 3):
        again = answer(store, both, model_dirs["gpt2"], params, windows)
        other = Store(tmp_path / f"fresh {windows}")
        fresh = answer(other, WorkerContext(other), model_dirs["gpt2"], params, windows)
        np.testing.assert_array_equal(fresh.values["word_score"], again.values["word_score"])
        scores.append(fresh.values["score"])
    assert np.abs(scores[0] - scores[1]).max() > 1e-3


def test_one_bag_for_all_questions(model_dirs, tmp_path, monkeypatch):
    """The list of neurons, one neuron and its course stand on one bag, built once."""
    built, part = [], bag_module.take_apart
    monkeypatch.setattr(bag_module, "take_apart", lambda *a: (built.append(a), part(*a))[1])
    common = {"query": 31, "first_windows": 3, "heads": "L0H0", "min_count": 0}
    store = Store(tmp_path)
    place = WorkerContext(store)
    answer(store, place, model_dirs["gpt2"], common, 5, "contextual-neurons")
    for neuron in (1, 2):
        answer(store, place, model_dirs["gpt2"], common | {"neuron": neuron}, 5, "neuron")
    assert 1 == len(built)


def answer(store, shared, path, params, windows, analysis="word-neurons"):
    run = describe_run(str(path), context=37, windows=windows)
    run = run.model_copy(update={"corpus": corpora.resolve(CorpusSpec(name="random"))})
    request = make_plan(Request(analysis=analysis, run=run, params=params)).looked_up(store)
    execute.gather_missing(shared, request, Execution(device="cpu"), report)
    execute.perform(shared, request, Execution(device="cpu"), report)
    return from_entry(store.get(request.key))


def report(done, total, note):
    """Nobody looks."""
