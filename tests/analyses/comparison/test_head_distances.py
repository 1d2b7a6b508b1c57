"""Distances between the kernels of a layer's heads: by loops, by design, and their groups."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import poskernel_core as pk
from poskernel_core.analyses.comparison import formulas
from poskernel_core.analyses.kernels.distances import KernelDistances, linked
from poskernel_core.engine.engine import describe_run
from tests.support import oracles
from tests.support.builders import VOCABULARY
from tests.support.builders import bag as made
from tests.support.builders.contextual import some_windows
from tests.support.passes import loaded
from tests.support.raw import analyse
from tests.support.refusals import refused
from tests.support.truth import truth_of

N = 13


@pytest.mark.parametrize(
    ("name", "skip", "factor", "windows"),
    [("gpt_neo", 4, 1.0, [None, 5, None]), ("llama", 2, 10**-0.5, [None] * 3)],
)
def test_every_pair(model_dirs, name, skip, factor, windows):
    texts = some_windows(5, 17)
    gathered = pk.run_pass(loaded(model_dirs[name]), texts, positions=(7, N))
    found = analyse("kernel-distances", gathered, query=N, skip=skip, alike=0.4, apart=0.6)

    truth = truth_of(model_dirs[name], texts)
    for layer, window in enumerate(windows):
        texts = truth.queries[layer], truth.keys[layer]
        rest = ([np.delete(each, text, axis=0) for each in texts] for text in range(5))
        kernels = (mean_kernels(*some, factor, skip, window) for some in (texts, *rest))
        check_layer(found, layer, *kernels)


def mean_kernels(queries, keys, factor, skip, window):
    """The mean kernel of every head at `N`, from `queries [text, head, pos, d]` and `keys`."""
    heads, shared = queries.shape[1], keys.shape[1]
    means = keys.mean(axis=0)
    return [
        oracles.mean_kernel(
            queries[:, head, N].tolist(), means[head * shared // heads].tolist(),
            factor, N, skip, window,
        )
        for head in range(heads)
    ]  # fmt: skip


def check_layer(found, layer, rows, *without):
    """Distances, errors, groups, ruled out pairs of a layer.

    From the kernels `[head]` of all texts, and those without each text, queries and mean keys.
    """
    heads, apart = range(len(rows)), np.zeros((len(rows), len(rows)))
    for a, b in itertools.product(heads, heads):
        apart[a, b] = oracles.total_variation(rows[a], rows[b])
        left = [oracles.total_variation(each[a], each[b]) for each in without]
        held = found.values["distance"][layer, a, b], found.errors["distance"][layer, a, b]
        assert (apart[a, b], oracles.jackknife_se(left)) == pytest.approx(held, rel=1e-3, abs=2e-5)
    expected = [sum(d >= 0.6 for d in row) for row in apart.tolist()]
    assert expected == found.values["ruled_out"][layer].tolist()
    check_groups(apart, found.values["group"][layer].tolist(), 0.4)


def check_groups(apart, groups, alike):
    """All pairs of a group are alike, no two groups could be one, numbers are by first member."""
    members = {g: [head for head, of in enumerate(groups) if of == g] for g in groups}
    for group in members.values():
        assert all(apart[a][b] <= alike + 1e-5 for a in group for b in group)
    for first, second in itertools.combinations(members.values(), 2):
        assert max(apart[a][b] for a in first for b in second) > alike - 1e-5
    assert list(range(len(members))) == list(members)


def test_known_heads(tmp_path):
    strengths = np.zeros((VOCABULARY, 1))
    path = made.reading(tmp_path / "model", strengths, [{0: 1.0}])
    texts = some_windows(5, 41)
    gathered = pk.run_pass(loaded(path), texts, positions=(37,))

    found = analyse("kernel-distances", gathered, query=37)

    far = 1 - 1 / 34  # of the keys 4 to 37
    expected = [[0, far, 0], [far, 0, far], [0, far, 0]]
    np.testing.assert_allclose(found.values["distance"][0], expected, atol=1e-4)
    assert [[0, 1, 0]] == found.values["group"].tolist()
    assert [[1, 2, 1]] == found.values["ruled_out"].tolist()
    rows = analyse("kernel-replicates", gathered, query=37).values["kernel"][0]
    gaps = [[float(formulas.distance(a, b)) for a in rows] for b in rows]
    np.testing.assert_allclose(gaps, expected, atol=1e-4)
    none = analyse("kernel-distances", gathered, query=37, apart=0.98, alike=1)
    assert [[0, 0, 0]] == none.values["group"].tolist() == none.values["ruled_out"].tolist()


def test_linked_by_hand():
    """Neighbours on a line: 0 and 1 join, 2 is near 1 alone, so it stays out; 3 joins nobody."""
    places = np.array([0.0, 0.05, 0.12, 0.9])
    apart = np.abs(places[:, None] - places)

    assert [0, 0, 1, 2] == linked(apart, 0.1).tolist()
    assert [0, 0, 0, 1] == linked(apart, 0.12).tolist()
    assert [0, 1, 2, 3] == linked(apart, 0.01).tolist()
    assert [0, 1, 0] == linked(apart[np.ix_([3, 0, 3], [3, 0, 3])], 0.0).tolist()
    assert [0] == linked(np.zeros((1, 1)), 0.1).tolist()


@given(st.integers(0, 2**20), st.integers(2, 13), st.floats(0.05, 0.9))
def test_linked(seed, heads, alike):
    generator = np.random.default_rng(seed)
    apart = np.triu(generator.uniform(size=(heads, heads)), 1)
    apart = apart + apart.T
    assume(np.abs(apart - alike).min() > 1e-6)
    order = generator.permutation(heads)

    groups = linked(apart, alike)
    moved = linked(apart[np.ix_(order, order)], alike)

    check_groups(apart.tolist(), groups.tolist(), alike)
    together = groups[order][:, None] == groups[order]
    np.testing.assert_array_equal(together, moved[:, None] == moved)


@pytest.mark.parametrize(("query", "skip"), [(3, 4), (41, 0)])
def test_refused(model_dirs, query, skip):
    run, question = describe_run(str(model_dirs["gpt2"])), KernelDistances()
    with refused(rf"from {skip} .* to 40, got {query}"):
        question.needs(run, question.params(query=query, skip=skip))

    for allowed in (skip, 40):
        params = question.params(query=allowed, skip=skip)
        assert {"main": run} == question.needs(run, params)
