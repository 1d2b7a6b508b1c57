"""Real weights: the first layer of GPT-2 small, against what is known of it."""

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core.common.specs import CorpusSpec
from poskernel_core.data import corpora
from poskernel_core.engine.engine import Engine
from poskernel_core.models import catalog
from poskernel_core.models.tokenizers import load_tokenizer
from poskernel_core.storage.store import Store

pytestmark = pytest.mark.slow

LOCAL = {3: (5, 0.97), 4: (9, 0.88), 7: (7, 0.94)}
UNIFORM = {5: 330, 11: 315}


MODEL = "gpt2-small-layer0"


@pytest.fixture(scope="module")
def result():
    """The heat map of layer 0 on 48 windows of 1024 tokens of the bundled sample, skip 4."""
    located = catalog.locate(MODEL)
    spec = corpora.resolve(CorpusSpec())
    windows = corpora.token_windows(
        spec, load_tokenizer(located), context=1024, windows=48, start_token=True
    ).tokens
    gathered = pk.run_pass(pk.load(MODEL, device="cpu"), windows, positions=(400, 1000), batch=1)
    return pk.analyse("etc", gathered, skip=4)


def test_kinds(result):
    kinds = result.select(query=400).text_of("kind")[0]
    assert list(LOCAL) == [head for head, kind in enumerate(kinds) if kind == "local"]
    assert list(UNIFORM) == [head for head, kind in enumerate(kinds) if kind == "uniform"]
    assert 7 == kinds.count("slow decay")


def test_how_far_heads_spread(result):
    """Head 5 is a little more level in so few windows; seven heads spread over 93 to 133 tokens."""
    at = result.select(query=400, layer=0).values
    for head, (tokens, mass) in LOCAL.items():
        assert tokens == pytest.approx(float(at["etc"][head]), abs=1)
        assert mass == pytest.approx(float(at["local_mass"][head]), abs=0.02)
    for head, tokens in UNIFORM.items():
        assert 397 == int(at["visible_keys"][head])
        assert tokens == pytest.approx(float(at["etc"][head]), rel=0.13)
    others = np.delete(at["etc"], [*LOCAL, *UNIFORM])
    assert 93 == pytest.approx(others.min(), rel=0.05)
    assert 133 == pytest.approx(others.max(), rel=0.07)
    far = result.select(query=1000, layer=0, head=11).values
    assert 0.6 == pytest.approx(float(far["etc"] / far["visible_keys"]), abs=0.05)


def test_groups(tmp_path, monkeypatch):
    """Heads 3, 4 and 7 join words; kernels 3 and 7 are alike, and far from the uniform ones.

    So it is in the numbers that come with the project.
    """
    monkeypatch.setenv("POSKERNEL_SHIPPED", "1")
    engine = Engine(Store(tmp_path))
    heads, apart = (
        pk.show(name, MODEL, query=400, engine=engine)
        for name in ("contextual-heads", "kernel-distances")
    )
    assert engine.worker_pid is None

    groups = heads.text_of("group")[0]
    assert list(LOCAL) == [head for head, group in enumerate(groups) if group == "detokenization"]
    distance = apart.values["distance"][0]
    assert (distance[np.ix_([3, 4, 7], [5, 11])] > 0.8).all()
    assert distance[5, 11] < 0.25
    assert {0} == set(np.diag(distance).tolist())
