"""Models without training whose kernels are known on paper."""

import numpy as np
import pytest

import poskernel_core as pk
from tests.support import builders
from tests.support.passes import loaded
from tests.support.raw import analyse

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
