"""Analyses of statistics in memory: what is left blank, limits of kinds, blocks, parameters."""

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core.analyses.base import Analysis, SkipParams
from poskernel_core.common.result import estimates
from poskernel_core.common.views import stacked, without
from poskernel_core.data.made import doubled
from poskernel_core.forward import attention
from tests.support import builders
from tests.support.passes import loaded
from tests.support.raw import analyse
from tests.support.refusals import refused

NAMES = ("gpt2", "gpt_neo", "llama")
EACH = pytest.mark.parametrize("name", NAMES)
WINDOWS, CONTEXT = 5, 23
POSITIONS = (0, 3, 4, 11, 22)


@pytest.fixture(scope="module")
def passes(model_dirs):
    ids = builders.random_ids(WINDOWS, CONTEXT, seed=43).numpy()
    return {name: pk.run_pass(loaded(model_dirs[name]), ids, positions=POSITIONS) for name in NAMES}


def heads_of(gathered):
    return np.ndindex(gathered.header.n_layers, gathered.header.n_heads)


@EACH
def test_queries_below_the_skip(passes, name):
    result = analyse("etc", passes[name], skip=4)

    summaries = ("etc", "half_mass_distance", "local_mass")
    for value in (*summaries, "query_variation", "attention_distance"):
        assert np.isnan(result.values[value][..., :2]).all(), value
        assert not np.isnan(result.values[value][..., 2:]).any(), value
    assert np.isnan(result.values["equivariance_error"][..., :2]).all()
    assert 0 == result.values["visible_keys"][..., :2].max()
    printed = result.as_json()["values"]
    assert [None, None] == printed["kind"][1][2][:2] == printed["etc"][1][2][:2]


def test_thresholds_of_kinds(passes):
    seen = set()
    for tokens, local, uniform in ((10, 0.5, 0.5), (3, 0.5, 0.5), (3, 0.9, 0.9), (3, 0.9, 0.2)):
        limits = {"local_tokens": tokens, "local_share": local, "uniform_share": uniform}
        result = pk.analyse("etc", passes["gpt2"], skip=0, **limits).select(query=22)
        kinds = []
        for at in heads_of(passes["gpt2"]):
            mass, etc = (result.values[name][at] for name in ("local_mass", "etc"))
            wide = "uniform" if etc >= uniform * 23 else "slow decay"
            kinds.append("local" if mass >= local else wide)
        assert kinds == [k for layer in result.text_of("kind") for k in layer]
        seen.add(tuple(kinds))
    assert 4 == len(seen)


@pytest.mark.parametrize(
    ("model", "what", "names"),
    [
        ("gpt2", "entropy", ("entropy",)),
        ("mistral", "sinks", ("alpha", "learned")),
        ("mistral", "headvis", ("headvis", "headvis_repeats")),
        ("mistral", "repeats", ("repeats", "repeat_texts")),
    ],
)
def test_blocks_and_batches_do_not_matter(model_dirs, monkeypatch, model, what, names):
    ids = doubled(builders.random_ids(13, 41, seed=7).numpy(), 5, first=0)
    asked = {"positions": (0, 2, 7, 36, 40), "gather": (what,)}
    whole = pk.run_pass(loaded(model_dirs[model]), ids, **asked)
    monkeypatch.setattr(attention, "BLOCK", 5)
    cut = pk.run_pass(loaded(model_dirs[model]), ids, batch=1, **asked)

    for group in (None, 0, 2, 9):
        some, others = (each if group is None else without(each, group) for each in (whole, cut))
        for name in names:
            one, other = stacked(some, name), stacked(others, name)
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=name)


BAD = {
    "no such analysis": ("nonsense", {}, "No analysis 'nonsense'"),
    "skip too large": ("etc", {"skip": 33}, "skip"),
    "negative skip": ("etc", {"skip": -1}, "skip"),
    "unknown parameter": ("etc", {"skips": 4}, "skips"),
    "position beyond the context": ("kernel", {"query": 23}, "choose 0 to 22"),
    "position not recorded": ("kernel", {"query": 12}, "No query at position 12"),
    "position below the skip": ("kernel", {"query": 3}, "sees no key"),
    "cell outside": ("kernel-map", {"head": "L3H0"}, "L0H0 to L2H4"),
    "cell misspelt": ("kernel-map", {"head": "3.1"}, "L0H0 to L2H4"),
    "text source in memory": ("kernel", {"query": 11, "source": "text", "text": "a"}, "one pass"),
    "source unknown": ("kernel", {"query": 11, "source": "dream"}, "source"),
    "parameter of another analysis": ("profile", {"skip": 4}, "skip"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_parameters(passes, case):
    analysis, params, words = BAD[case]
    with refused(words):
        analyse(analysis, passes["gpt2"], **params)


def test_what_follows_from_what_is_gathered(passes):
    """What an analysis with a pass of its own ignores, and where its queries stand."""

    class Early(Analysis[SkipParams]):
        name = title = "early-of-a-test"
        gathers = ("queries", "sinks")
        values = estimates("early [layer query], nats: of a test")

        def compute(self, statistics, params, progress):
            header = statistics["main"].header
            sizes = {"layer": header.n_layers, "query": len(header.positions)}
            axes = self.values[0].axes
            return self.result(params, {"early": np.ones([sizes[axis] for axis in axes])})

    class Mean(Early):
        gathers = ("repeats",)
        values = estimates("early [layer], nats: of a test")

    class Own(Mean):
        ignores = frozenset()

    kept = {"positions", "queries_per_position", "pattern_windows"}
    assert {"gather"} == Early.ignores
    assert {"gather"} | kept == Mean.ignores
    assert set() == Own.ignores
    views = {"main": passes["gpt2"]}
    early, mean = (each().answer(views, SkipParams(), lambda *_: None) for each in (Early, Mean))
    assert [*POSITIONS] == early.coordinates["query"].tolist()
    assert {} == mean.coordinates
