"""Analyses of statistics in memory against the oracles, on three architectures."""

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core.analyses.base import Analysis, SkipParams
from poskernel_core.common.heads import head_name
from poskernel_core.common.result import estimates
from poskernel_core.common.views import stacked, without
from poskernel_core.data.made import doubled
from poskernel_core.forward import attention
from tests.support import builders, oracles
from tests.support.passes import loaded
from tests.support.raw import analyse
from tests.support.refusals import refused
from tests.support.widths import arithmetic_in

NAMES = ("gpt2", "gpt_neo", "llama")
EACH = pytest.mark.parametrize("name", NAMES)
SKIPS = pytest.mark.parametrize("skip", [0, 4])
WINDOWS, CONTEXT = 5, 23
POSITIONS = (0, 3, 4, 11, 22)


@pytest.fixture(scope="module")
def passes(model_dirs):
    ids = builders.random_ids(WINDOWS, CONTEXT, seed=43).numpy()
    return {name: pk.run_pass(loaded(model_dirs[name]), ids, positions=POSITIONS) for name in NAMES}


class Head:
    """One head of a pass, by the oracles: its kernels and mean kernels at recorded positions."""

    def __init__(self, gathered, layer, head, skip):
        arrays, header = gathered.layer(layer), gathered.header
        shared = head * header.n_kv_heads // header.n_heads
        self.window, self.skip = header.sliding_windows[layer], skip
        self.observed = dict(zip(POSITIONS, arrays["mean_rows"][head].tolist(), strict=True))
        self.kernels = {
            n: [
                oracles.kernel_row(
                    q, arrays["mean_keys"][shared].tolist(), header.scales[layer], n, skip,
                    self.window,
                )
                for q in arrays["queries"][place, head].tolist()
            ]
            for place, n in enumerate(POSITIONS)
            if n >= skip
        }  # fmt: skip
        self.means = {n: oracles.mean_row(rows) for n, rows in self.kernels.items()}


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


@EACH
@SKIPS
@pytest.mark.parametrize("place", ["NumPy", "64 bits"])
def test_kernel(passes, name, skip, place):
    n = 11
    with arithmetic_in(place) as tolerance:
        result = analyse("kernel", passes[name], skip=skip, query=n)

    for layer, head in heads_of(passes[name]):
        truth = Head(passes[name], layer, head, skip)
        rows, values = np.array(truth.kernels[n]), result.values
        observed = np.where(np.arange(CONTEXT) < skip, 0, truth.observed[n])
        np.testing.assert_allclose(values["kernel"][layer, head], truth.means[n], atol=tolerance)
        low, high = np.percentile(rows, (10, 90), axis=0)
        np.testing.assert_allclose(values["kernel_low"][layer, head], low, atol=1e-9)
        np.testing.assert_allclose(values["kernel_high"][layer, head], high, atol=1e-9)
        np.testing.assert_allclose(
            values["observed"][layer, head], observed / observed.sum(), atol=1e-7
        )
        assert oracles.etc(truth.means[n]) == pytest.approx(values["etc"][layer, head])


@EACH
@SKIPS
def test_kernel_map(passes, name, skip):
    for layer, head in ((0, 0), (1, 3), (2, 4)):
        result = analyse("kernel-map", passes[name], skip=skip, head=head_name(layer, head))
        truth = Head(passes[name], layer, head, skip)
        for place, n in enumerate(POSITIONS):
            seen = oracles.visible(n, skip, truth.window)
            hidden = [i for i in range(CONTEXT) if i not in seen]
            assert np.isnan(result.values["kernel"][place, hidden]).all()
            if n < skip:
                continue
            kernel, total = np.array(truth.means[n]), sum(truth.observed[n][skip:])
            observed = np.array(truth.observed[n]) / total
            found = {value: array[place, seen] for value, array in result.values.items()}
            np.testing.assert_allclose(found["kernel"], kernel[seen], atol=1e-6)
            np.testing.assert_allclose(found["observed"], observed[seen], atol=1e-6)


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
