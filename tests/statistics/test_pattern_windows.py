"""Attention formed on the first windows alone: which statistics see fewer."""

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core.common.specs import OF_PATTERNS, CorpusSpec, Execution, RunSpec
from poskernel_core.engine.engine import Engine, describe_run
from poskernel_core.forward.loading import load
from poskernel_core.models.catalog import locate
from poskernel_core.passes import runner
from poskernel_core.passes.prepare import sizes_of
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.statistics import STATISTICS
from poskernel_core.storage.statistics import MANIFEST, in_passes, part_key, windows_of
from poskernel_core.storage.store import Store
from tests.support import builders

CONTEXT, WINDOWS, ASKED, SEEN = 23, 71, 64, 60
POSITIONS = (3, 11, 22)
GATHER = ("keys", "queries", "patterns", "residuals", "scores", "entropy", "sinks")

pytestmark = pytest.mark.usefixtures("near_worker")


@pytest.fixture(scope="module")
def model(model_dirs):
    return load(locate(str(model_dirs["llama"])), "cpu")


@pytest.fixture(scope="module")
def ids():
    return builders.random_ids(WINDOWS - 1, CONTEXT, seed=5).numpy()


def gathered(model, ids, seen, batch=None):
    """The arrays of each statistic; of so many first windows attention is asked to be formed."""
    corpus = CorpusSpec(name="windows")
    run = RunSpec(
        model=model.located.spec, corpus=corpus, context=CONTEXT, windows=len(ids),
        positions=POSITIONS, gather=GATHER, queries_per_position=13, pattern_windows=seen,
    )  # fmt: skip
    plan = sizes_of(run, model.geometry, ids, "windows")
    return runner.gather(model, ids, plan, run, batch=batch).parts


def test_what_sees_patterns_is_named():
    shown = {name for name, each in STATISTICS.items() if each.wants_patterns}
    assert shown - {"repeats", "headvis"} == set(OF_PATTERNS)


@pytest.fixture(scope="module")
def unbound(model, ids):
    return gathered(model, ids[:SEEN], None), gathered(model, ids, None)


@pytest.mark.parametrize("batch", [1, 71])
def test_some_see_the_first_windows_and_the_others_all(model, ids, unbound, batch):
    found, (first, whole) = gathered(model, ids, ASKED, batch), unbound
    for name, arrays in found.items():
        expected, other = (first, whole) if name in OF_PATTERNS else (whole, first)
        means = {each: array for each, array in arrays.items() if not each.endswith(".groups")}
        assert len(means) < len(arrays) or name in ("queries", "residuals")
        for value, array in means.items():
            np.testing.assert_allclose(array, expected[name][value], rtol=2e-5, atol=1e-6)
        differ = [not np.allclose(a, other[name][v], rtol=1e-3) for v, a in means.items()]
        assert any(differ) or name == "queries", name


def test_what_is_not_bound_is_shared():
    corpus = CorpusSpec(name="sample")
    plain = describe_run("demo-gpt2", corpus=corpus)
    bound = describe_run("demo-gpt2", corpus=corpus, pattern_windows=ASKED)
    for name in GATHER:
        same = part_key(plain, name, MANIFEST) == part_key(bound, name, MANIFEST)
        assert same == (name not in OF_PATTERNS)


def test_only_what_is_bound_is_gathered_again(model_dirs, tmp_path, monkeypatch):
    np.save(tmp_path / "ids.npy", builders.random_ids(WINDOWS, CONTEXT, seed=5).numpy())
    corpus, runs = CorpusSpec(name=str(tmp_path / "ids.npy")), []
    engine = Engine(Store(tmp_path / "store"))
    asked = {"corpus": corpus, "context": CONTEXT, "windows": WINDOWS, "engine": engine}
    gather_run = runner.gather_run
    monkeypatch.setattr(
        runner, "gather_run", lambda *given: runs.append(given[1]) or gather_run(*given)
    )
    whole = pk.show("etc", str(model_dirs["llama"]), **asked)
    few = pk.show("etc", str(model_dirs["llama"]), pattern_windows=ASKED, **asked)
    engine.close()
    engine.store.close()

    assert runs[1].gather == ("patterns",)
    assert "pattern_windows" not in whole.provenance
    assert few.provenance["pattern_windows"] == SEEN
    np.testing.assert_array_equal(whole.values["etc"], few.values["etc"])
    assert not np.array_equal(whole.values["attention_distance"], few.values["attention_distance"])


def test_windows_that_are_cut_already(model_dirs, tmp_path):
    np.save(tmp_path / "ids.npy", builders.random_ids(WINDOWS, CONTEXT, seed=5).numpy())
    corpus = CorpusSpec(name=str(tmp_path / "ids.npy"))
    located = locate(str(model_dirs["llama"]))
    run = describe_run(
        str(model_dirs["llama"]),
        corpus=corpus,
        context=CONTEXT,
        windows=WINDOWS,
        pattern_windows=ASKED,
    )
    shared = WorkerContext(Store(tmp_path / "store"))
    first, again = (shared.prepare(run, Execution(), located, None)[1] for _ in range(2))
    assert SEEN == first.seen
    assert first == again


def test_what_needs_no_attention_shares_the_pass():
    run = describe_run("demo-attn-2l", context=CONTEXT, windows=WINDOWS)
    keys = run.model_copy(update={"gather": ("keys",), "pattern_windows": None})
    some, whole = (run.model_copy(update={"pattern_windows": each}) for each in (3, 5))

    assert [windows_of(some)] * 2 == [windows for _, windows in in_passes([keys, some])]
    assert [windows_of(some), windows_of(whole)] == [
        windows for _, windows in in_passes([some, whole])
    ]
    assert [windows_of(keys)] == [windows for _, windows in in_passes([keys])]
