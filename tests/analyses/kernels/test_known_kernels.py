"""Models without training whose kernels are known on paper."""

import numpy as np
import pytest

import poskernel_core as pk
from tests.support import builders
from tests.support.passes import loaded

T, BACK, TAU = 37, 2, 5.0
POSITIONS = (1, 4, 11, 36)


@pytest.fixture(scope="module")
def gathered(tmp_path_factory):
    """A pass of the model whose head 0 looks two back, head 1 is uniform, head 2 decays."""
    path = builders.look_back(tmp_path_factory.mktemp("look-back") / "m", BACK, T, TAU)
    ids = builders.random_ids(7, T).numpy()
    return pk.run_pass(loaded(path), ids, positions=POSITIONS)


def at(gathered, analysis, n, **params):
    if analysis == "etc":
        return pk.analyse("etc", gathered, **params).select(query=n, layer=0)
    return pk.analyse(analysis, gathered, query=n, **params).select(layer=0)


@pytest.mark.parametrize("skip", [0, 4])
def test_head_that_looks_two_back(gathered, skip):
    """All mass lies on offset 2: one effective token, local, half its mass within two tokens."""
    result = at(gathered, "kernel", 11, skip=skip)
    kernel = result.values["kernel"][0]
    assert 11 - BACK == int(kernel.argmax())
    assert kernel.max() > 0.999
    assert 1.0 == pytest.approx(float(result.values["etc"][0]), abs=1e-3)
    assert BACK == int(result.values["half_mass_distance"][0])


@pytest.mark.parametrize("skip", [0, 4])
@pytest.mark.parametrize("n", POSITIONS[1:])
def test_uniform_head(gathered, skip, n):
    result = at(gathered, "etc", n, skip=skip)
    assert n + 1 - skip == int(result.values["visible_keys"][1])
    assert n + 1 - skip == pytest.approx(float(result.values["etc"][1]))
    np.testing.assert_allclose(result.values["query_variation"][1], 0, atol=1e-6)


@pytest.mark.parametrize("skip", [0, 4])
def test_decaying_head(gathered, skip):
    """Each token further back weighs `exp(-1 / tau)` as much, for every position alike."""
    kernel = at(gathered, "kernel", 36, skip=skip).values["kernel"][2]
    weights = np.exp(-(36 - np.arange(T)) / TAU) * (np.arange(T) >= skip)
    np.testing.assert_allclose(kernel, weights / weights.sum(), rtol=1e-3)
    assert at(gathered, "etc", 36, skip=skip).values["equivariance_error"][2] < 1e-3


def test_kinds_at_the_end(gathered):
    """With ten of 37 positions local: two back is local, level is uniform, decay is local."""
    values = at(gathered, "etc", 36, skip=0)
    assert ["local", "uniform", "local"] == values.text_of("kind")


def test_kernels_are_the_observed_attention(gathered):
    """No content enters these scores, so that kernel and mean attention agree."""
    assert at(gathered, "etc", 36, skip=0).values["attention_distance"].max() < 1e-5


def test_profile(gathered):
    profile = pk.analyse("profile", gathered).values["profile"][0]
    assert BACK == int(profile[0].argmax())
    assert (np.diff(profile[2, : T - 1]) < 0).all()
