"""Sub-latents of a neuron: two sources are found again; what components are, for any table."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poskernel_core.analyses.bag.experiment import latents
from poskernel_core.analyses.bag.experiment.bag import build_bag
from poskernel_core.analyses.bag.neuron import NeuronLatents
from poskernel_core.analyses.bag.params import BagParams
from tests.support.builders import VOCABULARY
from tests.support.builders import bag as made
from tests.support.builders.bag import study
from tests.support.builders.contextual import perform, some_windows
from tests.support.refusals import refused

GROUPS = (range(20, 43), range(50, 79))


@pytest.fixture(scope="module")
def two_groups(tmp_path_factory):
    """Directory of a model whose neuron 5 reads two groups of tokens, neuron 0 the first alone."""
    generator = np.random.default_rng(13)
    strengths = generator.normal(0, 0.02, size=(VOCABULARY, 2))
    for source, group in enumerate(GROUPS):
        strengths[group, source] = generator.uniform(0.3, 0.6, size=len(group))
    return made.reading(tmp_path_factory.mktemp("neuron") / "groups", strengths, [
        {0: 1.0}, {1: 1.0}, {}, {0: -1.0}, {0: 1.0, 1: -1.0}, {0: 1.0, 1: 1.0},
    ])  # fmt: skip


def asked(subject, main, **params):
    return perform(NeuronLatents, subject, main, **({"query": 37, "min_count": 0} | params))


def test_two_sub_latents(two_groups):
    subject, main = study(two_groups, some_windows(4, 41))
    for neuron, groups in ((5, GROUPS), (0, GROUPS[:1])):
        found = asked(subject, main, neuron=neuron, components=2, top_k=20)
        values = found.values
        tops = [set(row) for row in values["top"].tolist()]
        for group in groups:
            assert any(top <= set(group) for top in tops[: len(groups)])
        assert 1 == pytest.approx(values["share"].sum() + values["rest"])
        assert 0 == pytest.approx(float(values["rest"]), abs=1e-5)
        assert (values["weight"] > 0).all()
    assert values["share"][0] > 0.98


@settings(max_examples=9)
@given(st.integers(0, 2**16), st.integers(2, 4), st.sampled_from([20_000, 97]))
def test_components(seed, count, most):
    generator = np.random.default_rng(seed)
    table = generator.laplace(size=(199, 4)) @ generator.normal(size=(4, 11)) + 3
    table[:, 0] = 0  # as the stream's first dimension may be
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latents, "MAX_TOKENS", most)
        patch.setattr(latents, "ROWS", most // 2)
        values, directions = latents.components(table, count, seed)

    assert (199, count) == values.shape
    np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(values.var(axis=0), 1)
    if most > len(table):
        np.testing.assert_allclose(np.corrcoef(values.T), np.eye(count), atol=1e-6)
    if count == 4 and most > len(table):
        np.testing.assert_allclose(values @ directions, table - table.mean(axis=0), atol=1e-6)


def test_mixed_sources_are_found_again():
    """Independent heavy-tailed sources that are turned: turned back, up to order and sign."""
    generator = np.random.default_rng(3)
    sources = generator.laplace(size=(5003, 3)) / np.sqrt(2)
    mixing = np.linalg.qr(generator.normal(size=(3, 3)))[0]
    turn = latents.rotation(sources @ mixing.T, 7)
    np.testing.assert_allclose(turn @ turn.T, np.eye(3), atol=1e-12)
    found = np.abs(turn @ mixing)
    np.testing.assert_allclose(found.max(axis=1), 1, atol=0.01)
    assert {0, 1, 2} == {*found.argmax(axis=1).tolist()}


def test_every_number(random_bag, bag_params):
    subject, main, _ = random_bag
    params = {"neuron": 7, "components": 6, "shown": 4, "top_k": 3, "min_count": 0}
    found = perform(NeuronLatents, subject, main, **bag_params, **params)
    bag = build_bag(subject, (1, 3), BagParams(query=11, first_windows=5))
    table, read = bag.table(np.arange(1, VOCABULARY)).numpy(), bag.readers()[:, 7].double().numpy()
    values, directions = latents.components(table, 6, subject.source.seed)
    whole = table @ read

    rows = []
    for value, direction in zip(values.T, directions, strict=True):
        weight = float(direction @ read)
        turned = value if weight > 0 else -value
        order = np.argsort(turned)
        assert np.cov(turned, whole, ddof=0)[0, 1] == pytest.approx(abs(weight), rel=1e-4)
        rows.append((weight**2 / whole.var(), abs(weight), order[::-1][:3], order[:3], turned))
    rest = 1 - sum(row[0] for row in rows)
    assert rest == pytest.approx(float(found.values["rest"]), abs=1e-4)
    assert 0 < rest < 1
    for place, row in enumerate(sorted(rows, key=lambda row: -row[0])[:4]):
        here = {name: value[place] for name, value in found.values.items() if value.ndim}
        assert row[:2] == pytest.approx((here["share"], here["weight"]), rel=1e-4)
        for name, order in (("top", row[2]), ("bottom", row[3])):
            assert (order + 1).tolist() == here[name].tolist()
            np.testing.assert_allclose(here[f"{name}_value"], row[4][order])
    assert (4,) == found.values["share"].shape


def test_refused(two_groups):
    subject, main = study(two_groups, some_windows(4, 41))
    rare = dataclasses.replace(subject, windows=np.full((4, 41), 7))
    for on, params, words in (
        (subject, {"neuron": 6}, r"No neuron 6: expected 0 to 5"),
        (subject, {"neuron": 5}, r"span 2 dimensions: .*, got 24"),
        (rare, {"min_count": 1, "heads": "L0H0"}, "of 1 tokens span 0 dimensions"),
        (subject, {"neuron": 2, "components": 2}, "neuron 2 alike: there is nothing"),
    ):
        with refused(words):
            asked(on, main, **params)


def test_components_that_are_kept(two_groups, monkeypatch):
    subject, main = study(two_groups, some_windows(4, 41))
    found, find = [], latents.components
    monkeypatch.setattr(latents, "components", lambda *asked: found.append(asked) or find(*asked))
    first = asked(subject, main, neuron=5, components=2)
    other = asked(subject, main, neuron=4, components=2)
    assert 1 == len(found)
    assert first.values["weight"].tolist() != other.values["weight"].tolist()

    seeded = dataclasses.replace(subject, source=dataclasses.replace(subject.source, seed=7))
    for times, (on, changes) in enumerate(
        [(subject, {"components": 2, "min_count": 1}), (seeded, {"components": 2})], start=2
    ):
        asked(on, main, neuron=5, **changes)
        assert times == len(found)
