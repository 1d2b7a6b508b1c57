"""The first layer of GPT-2 small, as its results come with the project: what the ledger has not."""

import numpy as np
import pytest

import poskernel_core as pk

LOCAL = {3: (5, 0.97), 4: (9, 0.88), 7: (7, 0.94)}
UNIFORM = {5: 330, 11: 315}


@pytest.fixture
def shipped(shipped_engine):
    yield lambda name, **asked: pk.show(name, "gpt2-small-layer0", engine=shipped_engine, **asked)
    assert shipped_engine.worker_pid is None


def test_how_far_heads_spread(shipped):
    """Head 5 is a little more level in these texts; seven heads spread over 93 to 133 tokens."""
    found = shipped("etc")
    at = found.select(query=400, layer=0)
    for head, (tokens, mass) in LOCAL.items():
        assert tokens == pytest.approx(float(at.values["etc"][head]), abs=1)
        assert mass == pytest.approx(float(at.values["local_mass"][head]), abs=0.02)
    for head, tokens in UNIFORM.items():
        assert 397 == int(at.values["visible_keys"][head])
        assert tokens == pytest.approx(float(at.values["etc"][head]), rel=0.13)
    others = np.delete(at.values["etc"], [*LOCAL, *UNIFORM])
    assert 93 == pytest.approx(others.min(), rel=0.05)
    assert 133 == pytest.approx(others.max(), rel=0.07)
    far = found.select(query=1000, layer=0, head=11).values
    assert 0.6 == pytest.approx(float(far["etc"] / far["visible_keys"]), abs=0.05)


def test_distances(shipped):
    """Kernels of local heads are far from the uniform ones, which are alike."""
    distance = shipped("kernel-distances", query=400).values["distance"][0]
    assert (distance[np.ix_([3, 4, 7], [5, 11])] > 0.8).all()
    assert distance[5, 11] < 0.25
    assert {0} == set(np.diag(distance).tolist())
