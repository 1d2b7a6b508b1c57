"""Positional kernels: by hand, the oracles, algebraic properties, and models known on paper."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poskernel_core as pk
from poskernel_core.analyses.kernels import formulas as kernels
from poskernel_core.analyses.kernels.etc import summarise_row
from poskernel_core.common.attention import ScoreRule
from tests.support import builders, oracles
from tests.support.passes import loaded
from tests.support.raw import analyse

SEEDS = st.integers(0, 2**32 - 1)
few = settings(max_examples=23)


# kernel (its last key is the query's own), half-mass distance
HALF_MASS = [
    ([1.0], 0.5),
    ([0.0, 0.0, 1.0], 0.5),
    ([1.0, 0.0, 0.0], 2.5),
    ([0.25, 0.25, 0.25, 0.25], 2),
    ([0.25, 0.375, 0.25, 0.125, 0.0], 3 + 1 / 3),
    ([0.1] * 10, 5),
]
# local mass, ETC, visible, local share, uniform share, kind
KINDS = [
    (0.5, 90.0, 97.0, 0.5, 0.5, "local"),
    (0.49, 48.5, 97.0, 0.5, 0.5, "uniform"),
    (0.49, 48.4, 97.0, 0.5, 0.5, "slow decay"),
    (0.49, 48.4, 97.0, 0.4, 0.5, "local"),
    (0.49, 48.4, 97.0, 0.5, 0.4, "uniform"),
    (0.49, 90.0, 97.0, 0.5, 0.95, "slow decay"),
]


def draw(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def kernels_of(seed, heads=3, samples=5, keys=7):
    return kernels.kernel_rows(draw(seed, heads, samples, 5), draw(seed + 1, heads, keys, 5), 0.7)


@few
@given(SEEDS, st.sampled_from([1, 2, 3, 6]), st.sampled_from([0, 4]), st.sampled_from([None, 5]))
def test_kernel_rows(seed, key_heads, skip, window):
    heads, samples, n, scale = 6, 3, 10, 0.37
    queries, keys = draw(seed, heads, samples, 5), draw(seed + 1, key_heads, 13, 5)
    low = ScoreRule(scale, window).first_visible(n, skip)

    found = kernels.kernel_rows(queries, keys[:, low : n + 1], scale)

    for head in range(heads):
        shared = keys[head * key_heads // heads].tolist()
        for sample in range(samples):
            q = queries[head, sample].tolist()
            expected = oracles.kernel_row(q, shared, scale, n, skip, window)
            np.testing.assert_allclose(found[head, sample], expected[low : n + 1], rtol=1e-12)
            assert 0 == sum(expected[:low])


def test_huge_scores():
    found = kernels.kernel_rows(1e6 * draw(3, 2, 3, 5), draw(4, 2, 7, 5), 1.0)
    np.testing.assert_allclose(found.sum(axis=-1), np.ones((2, 3)))


@few
@given(SEEDS, st.sampled_from([1, 2, 7, 13]))
def test_etc(seed, keys):
    found = kernels_of(seed, keys=keys)
    etc = kernels.effective_tokens(found)
    assert np.all((1 - 1e-9 <= etc) & (etc <= keys + 1e-9))
    assert 1.6 == pytest.approx(oracles.etc([0.75, 0.25]))
    expected = [[oracles.etc(row) for row in head] for head in found.tolist()]
    np.testing.assert_allclose(etc, expected)


@pytest.mark.parametrize(("kernel", "expected"), HALF_MASS)
def test_half_mass_distance_by_hand(kernel, expected):
    assert expected == pytest.approx(float(kernels.half_mass_distance(np.array(kernel))))
    assert expected == pytest.approx(oracles.half_mass_distance(kernel, len(kernel) - 1))


@few
@given(SEEDS, st.sampled_from([1, 3, 10]))
def test_half_mass_and_local_mass(seed, tokens):
    """Both are the oracle's, for a query in the middle of the context and a skip of 2."""
    n, skip = 12, 2
    found = kernels_of(seed, keys=n + 1 - skip)
    means = found.mean(axis=1)
    row = summarise_row(means, None, tokens, (0, 0))

    for head, mean in enumerate(means):
        whole = [0.0] * skip + mean.tolist() + [0.0] * 3
        half = oracles.half_mass_distance(whole, n)
        assert half == pytest.approx(row["half_mass_distance"][head])
        assert oracles.local_mass(whole, n, tokens) == pytest.approx(row["local_mass"][head])
        assert n + 1 - skip == row["visible_keys"][head]


def test_a_head_that_looks_at_skipped_keys_alone():
    """What 32 bits hold of its attention to the other keys is nothing: no key has a share."""
    mean = np.full((2, 5), 0.2, dtype=np.float32)
    observed = np.array([[0, 0, 0, 0, 0], [0, 0, 0, 0, 0.25]], dtype=np.float32)
    assert [0.5, 0.8] == pytest.approx(
        summarise_row(mean, observed, 3, (0, 0))["attention_distance"]
    )


@pytest.mark.parametrize(("mass", "etc", "visible", "local", "uniform", "expected"), KINDS)
def test_kinds(mass, etc, visible, local, uniform, expected):
    code = kernels.classify(np.array(mass), np.array(etc), np.array(visible), local, uniform)
    assert expected == kernels.KINDS[int(code)]
    assert -1 == kernels.classify(np.zeros(1), np.array([np.nan]), np.zeros(1))[0]


T, BACK, TAU = 37, 2, 5.0
POSITIONS = (1, 4, 11, 36)


@pytest.fixture(scope="module")
def gathered(tmp_path_factory):
    """A pass of the model whose head 0 looks two back, head 1 is uniform, head 2 decays."""
    path = builders.look_back(tmp_path_factory.mktemp("look-back") / "m", BACK, T, TAU)
    ids = builders.random_ids(7, T).numpy()
    return pk.run_pass(loaded(path), ids, positions=POSITIONS)


@pytest.mark.parametrize("skip", [0, 4])
def test_known_heads(gathered, skip):
    """Two back: one effective token, half its mass within two; uniform: all that are visible."""
    result = analyse("kernel", gathered, query=11, skip=skip).select(layer=0).values
    kernel = result["kernel"][0]
    assert 11 - BACK == int(kernel.argmax())
    assert kernel.max() > 0.999
    assert 1.0 == pytest.approx(float(result["etc"][0]), abs=1e-3)
    assert BACK == int(result["half_mass_distance"][0])
    etc = analyse("etc", gathered, skip=skip).select(layer=0)
    for n in POSITIONS[1:]:
        uniform = etc.select(query=n, head=1).values
        assert n + 1 - skip == int(uniform["visible_keys"]) == pytest.approx(uniform["etc"])
        assert 0 == pytest.approx(uniform["query_variation"], abs=1e-6)
    # each token further back weighs exp(-1 / tau) as much, for every position alike
    weights = np.exp(-(36 - np.arange(T)) / TAU) * (np.arange(T) >= skip)
    decaying = analyse("kernel", gathered, query=36, skip=skip).values["kernel"][0, 2]
    np.testing.assert_allclose(decaying, weights / weights.sum(), rtol=1e-3)
    end = etc.select(query=36)
    assert end.values["equivariance_error"][2] < 1e-3
    # with ten of 37 positions local; no content enters, so kernels are the mean attention
    assert ["local", "uniform", "local"] == end.text_of("kind")
    assert end.values["attention_distance"].max() < 1e-5


def test_profile(gathered):
    profile = analyse("profile", gathered).values["profile"][0]
    assert BACK == int(profile[0].argmax())
    assert (np.diff(profile[2, : T - 1]) < 0).all()
