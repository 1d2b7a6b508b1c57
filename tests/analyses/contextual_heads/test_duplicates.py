"""Attention to copies: where they stand, by plain transformers, and heads built to find them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.analyses.contextual_heads.experiment.duplicates import (
    copy_distances,
    copy_sequences,
    duplicates,
)
from poskernel_core.analyses.contextual_heads.spec import (
    BEHAVIOURS,
    ContextualHeads,
    Thresholds,
    behaviour,
    regrouped,
)
from tests.support import builders
from tests.support import oracles_random as oracle
from tests.support.builders import START
from tests.support.builders import bag as made
from tests.support.builders.bag import study
from tests.support.builders.contextual import perform, some_windows

QUERY, SAMPLES = 45, 19


@pytest.fixture(scope="module")
def finders(tmp_path_factory):
    root = tmp_path_factory.mktemp("copies")
    return {
        None: made.copies(root / "global"),
        made.NEAR_WINDOW: made.copies(root / "local", window=made.NEAR_WINDOW),
    }


def places(query, start):
    """Where tokens are looked from, and where their copies stand, by trying out."""
    found, step = [], 0
    while query - 3 * step - 2 ** (step + 1) >= start:
        found.append((query - 3 * step, query - 3 * step - 2 ** (step + 1)))
        step += 1
    return found


@given(st.integers(0, 3000), st.integers(0, 1))
def test_copies_never_collide(query, start):
    distances = copy_distances(query, start, 293)

    assert [2 ** (k + 1) for k in range(len(distances))] == distances.tolist()
    pairs = places(query, start)
    assert [n - i for n, i in pairs] == distances.tolist()
    flat = [place for pair in pairs for place in pair]
    assert len(flat) == len(set(flat))
    assert all(start <= place <= query for place in flat)


def test_distances_by_hand():
    """From 45, 42, 39, 36, 33 back by 2, 4, 8, 16, 32: the last copy stands at 1."""
    assert [2, 4, 8, 16, 32] == copy_distances(45, 1, 293).tolist()
    assert [2, 4, 8, 16] == copy_distances(44, 1, 293).tolist()
    assert [2, 4, 8, 16, 32] == copy_distances(44, 0, 293).tolist()
    assert [] == copy_distances(1, 0, 293).tolist()
    assert [2, 4, 8] == copy_distances(44, 0, 4).tolist()  # one of four letters is left for others


def test_sequences(finders):
    subject, _ = study(finders[None], some_windows(2, 47))
    distances = copy_distances(QUERY, 1, 293)

    copies, without = copy_sequences(subject, QUERY, distances, range(3, 7))

    assert (4, QUERY + 1) == copies.shape == without.shape
    pairs = places(QUERY, 1)
    for row, plain in zip(copies.tolist(), without.tolist(), strict=True):
        for n, i in pairs:
            assert [i, n] == [place for place, token in enumerate(row) if token == row[n]]
            assert [n] == [place for place, token in enumerate(plain) if token == row[n]]
        changed = [place for place in range(QUERY + 1) if row[place] != plain[place]]
        assert sorted(i for _, i in pairs) == changed
        assert row[0] == START
        assert START not in row[1:]
    again = copy_sequences(subject, QUERY, distances, range(5, 6))
    np.testing.assert_array_equal(copies[2:3], again[0])


@pytest.mark.parametrize("window", [None, made.NEAR_WINDOW])
def test_known_heads(finders, window):
    subject, _ = study(finders[window], some_windows(2, 47))
    found = duplicates(subject, QUERY, SAMPLES, lambda _: None, last=0)

    seen = np.array([d < (window or 47) for d in (2, 4, 8, 16, 32)])
    copy, _ = found["duplicate_attention"]
    np.testing.assert_allclose(copy[0, 0], 0.5 * seen, atol=1e-4)
    np.testing.assert_allclose(copy[0, 2], 1.0 * seen, atol=1e-4)
    even = [1 / min(n + 1, window or 47) for n, _ in places(QUERY, 1)]
    np.testing.assert_allclose(copy[0, 1], even * seen, atol=1e-6)
    baseline = found["baseline"][0][0, 2]
    for name, part in (("near_duplicates", slice(3)), ("far_duplicates", slice(3, None))):
        some = seen[part]
        mean, error = (each[0] for each in found[name])
        assert 0.5 * some.mean() == pytest.approx(mean[0], abs=1e-4)
        assert 0 == pytest.approx(mean[1], abs=1e-6)
        assert some.mean() == pytest.approx(mean[2] + baseline[part].mean(), abs=1e-4)
        assert (error[:2] < 1e-4).all()


@pytest.mark.parametrize("name", ["gpt2", "mistral"])
def test_random_weights(model_dirs, name):
    subject, _ = study(model_dirs[name], some_windows(2, 31))
    counted = []
    found = duplicates(subject, 29, 11, counted.append)

    pairs = places(29, 1)
    texts = copy_sequences(subject, 29, copy_distances(29, 1, 293), range(11))
    rows = {}
    for which, tokens in zip(("duplicate_attention", "baseline"), texts, strict=True):
        patterns = builders.hf_eager_attentions(model_dirs[name], torch.from_numpy(tokens))
        stack = np.stack([pattern.numpy() for pattern in patterns], axis=1)
        rows[which] = np.stack([stack[..., n, i] for n, i in pairs], axis=-1)
    more = rows["duplicate_attention"] - rows["baseline"]
    rows |= {
        "near_duplicates": more[..., :3].mean(axis=-1),
        "far_duplicates": more[..., 3:].mean(axis=-1),
    }
    for which, samples in rows.items():
        mean, error = oracle.mean_and_error(list(samples))
        np.testing.assert_allclose(found[which][0], mean, atol=1e-5)
        np.testing.assert_allclose(found[which][1], error, atol=1e-5)
    assert 11 == sum(counted)
    first = duplicates(subject, 29, 11, counted.append, last=0)
    for which in rows:
        np.testing.assert_allclose(found[which][0][:1], first[which][0], atol=1e-7)


def test_groups_by_hand():
    rows = [  # near, far, local mass, ETC, spread, group
        (0.3, 0.0, 0.9, 99, 0.0, 0),
        (0.0, 0.31, 0.0, 1, 9.0, 0),
        (np.nan, 0.4, 0.0, 1, 9.0, 0),
        (0.29, np.nan, 0.5, 99, 0.0, 1),
        (0.29, 0.29, 0.49, 30, 0.25, 2),
        (0.0, 0.0, 0.0, 29.9, 0.25, 3),
        (0.0, 0.0, 0.0, 99, 0.26, 3),
        (np.nan, np.nan, 0.0, 30, np.nan, 3),
    ]
    names = ("near_duplicates", "far_duplicates", "local_mass", "etc", "denominator_cv")
    values = {name: np.array([row[at] for row in rows]) for at, name in enumerate(names)}

    assert [row[-1] for row in rows] == behaviour(values, Thresholds()).tolist()
    strict = Thresholds(duplicates=1, local=0.95, broad=100, steady=9)
    assert [3] * 8 == behaviour(values, strict).tolist()


def test_groups_of_known_heads(finders):
    """Heads 0 and 2 are of the duplicate group; other limits move the uniform head."""
    subject, main = study(finders[None], some_windows(3, 47))
    found = perform(ContextualHeads, subject, main, query=QUERY, samples=SAMPLES)
    words = [BEHAVIOURS[group] for group in found.values["group"][0]]
    assert ["duplicate token", "contextual", "duplicate token"] == words
    assert [2, 4, 8, 16, 32] == found.coordinates["distance"].tolist()
    other = regrouped(found, duplicates=0.75, broad=45)
    assert ["other", "duplicate token"] == [BEHAVIOURS[g] for g in other.values["group"][0, 1:]]
    assert found.params | {"duplicates": 0.75, "broad": 45} == other.params
