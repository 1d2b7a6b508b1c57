"""Statistics of attention formed on the first windows alone, and of the texts of the tokens."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import poskernel_core as pk
from poskernel_core.common.specs import ALL_GATHERED, OF_PATTERNS, CorpusSpec, Execution, RunSpec
from poskernel_core.engine.engine import describe_run
from poskernel_core.forward.loading import load
from poskernel_core.models.catalog import locate
from poskernel_core.models.tokenizers import load_tokenizer
from poskernel_core.passes import runner, worker_context
from poskernel_core.passes.prepare import prepare, sizes_of
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.statistics import STATISTICS, Statistic
from poskernel_core.storage.statistics import (
    MANIFEST,
    StoredStatistics,
    in_passes,
    part_key,
    windows_of,
)
from poskernel_core.storage.store import Store
from tests.support import builders
from tests.support.stages import run_over

CONTEXT, WINDOWS, ASKED, SEEN = 23, 71, 64, 60
POSITIONS = (3, 11, 22)
GATHER = ("keys", "queries", "patterns", "residuals", "scores", "entropy", "sinks")

pytestmark = pytest.mark.usefixtures("near_worker", "unchecked")


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
    """Of the pages' passes; a new statistic with a pass of its own is named nowhere."""
    shown = {name for name, each in STATISTICS.items() if each.wants_patterns}
    assert shown & {*ALL_GATHERED} <= OF_PATTERNS <= shown


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


def test_only_what_is_bound_is_gathered_again(model_dirs, tmp_path, monkeypatch, fresh_engine):
    np.save(tmp_path / "ids.npy", builders.random_ids(WINDOWS, CONTEXT, seed=5).numpy())
    corpus, runs = CorpusSpec(name=str(tmp_path / "ids.npy")), []
    asked = {"corpus": corpus, "context": CONTEXT, "windows": WINDOWS, "engine": fresh_engine}
    gather_run = runner.gather_run
    monkeypatch.setattr(
        runner, "gather_run", lambda *given: runs.append(given[1]) or gather_run(*given)
    )
    whole = pk.show("etc", str(model_dirs["llama"]), **asked)
    few = pk.show("etc", str(model_dirs["llama"]), pattern_windows=ASKED, **asked)

    assert runs[1].gather == ("patterns",)
    assert "pattern_windows" not in whole.provenance
    assert few.provenance["pattern_windows"] == SEEN
    np.testing.assert_array_equal(whole.values["etc"], few.values["etc"])
    assert not np.array_equal(whole.values["attention_distance"], few.values["attention_distance"])


def test_windows_that_are_cut_already(model_dirs, tmp_path, monkeypatch):
    """Passes and experiments take copies of one cut; other windows are another."""
    cuts, prepare = [], worker_context.prepare
    monkeypatch.setattr(worker_context, "prepare", lambda *a: (cuts.append(a), prepare(*a))[1])
    ids, model = builders.random_ids(WINDOWS, CONTEXT, seed=5).numpy(), model_dirs["llama"]
    run = run_over(tmp_path, model, ids, WINDOWS, pattern_windows=ASKED)
    shared, located = WorkerContext(Store(tmp_path / "store")), locate(str(model))
    made = [shared.prepare(run, Execution(), located, None) for _ in range(3)]
    assert (1, SEEN) == (len(cuts), made[0][1].seen)
    for windows, plan in made[1:]:
        np.testing.assert_array_equal(made[0][0], windows)
        assert windows is not made[0][0]
        assert plan == made[0][1]
    other = run.model_copy(update={"windows": 4})
    assert 4 == len(shared.prepare(other, Execution(), located, None)[0])


def test_what_needs_no_attention_shares_the_pass():
    run = describe_run("demo-attn-2l", context=CONTEXT, windows=WINDOWS)
    keys = run.model_copy(update={"gather": ("keys",), "pattern_windows": None})
    some, whole = (run.model_copy(update={"pattern_windows": each}) for each in (3, 5))

    assert [windows_of(some)] * 2 == [windows for _, windows in in_passes([keys, some])]
    assert [windows_of(some), windows_of(whole)] == [
        windows for _, windows in in_passes([some, whole])
    ]
    assert [windows_of(keys)] == [windows for _, windows in in_passes([keys])]


MODEL = "demo-gpt2"


def is_mark(text):
    return bool(text.strip()) and not any(map(str.isalnum, text))


@pytest.fixture
def punctuation():
    """A statistic of this test alone: the attention to punctuation, summed over all queries."""

    class Punctuation(Statistic):
        name, means = "punctuation-of-a-test", {"mass_sum": "mass"}
        wants_patterns = wants_texts = True

        def allocate(self):
            return {"mass_sum": self.zeros(self.sizes.geometry.n_heads)}

        def pattern(self, block, batch):
            known = torch.tensor([*map(is_mark, self.sizes.texts)])
            keys = batch.tokens[:, block.first_key : block.first_key + block.pattern.shape[-1]]
            found = torch.einsum("thnk,tk->h", block.pattern.double(), known[keys].double())
            self.add("mass_sum", block.layer, found)

    yield Punctuation.name
    del STATISTICS[Punctuation.name]


def test_a_statistic_that_reads_them(punctuation, tmp_path):
    located, execution = locate(MODEL), Execution()
    run = describe_run(
        MODEL, corpus=CorpusSpec(name="sample"), context=19, windows=20, gather=(punctuation,)
    )
    store = Store(tmp_path)
    runner.gather_run(WorkerContext(store), run, execution, {}, lambda *_: None)
    view = StoredStatistics.open(store, run)
    found = [view.layer(layer)["mass"] for layer in range(located.geometry.n_layers)]
    store.close()

    tokenizer = load_tokenizer(located)
    plain = AutoModelForCausalLM.from_pretrained(located.directory, attn_implementation="eager")
    windows, sizes = prepare(run, execution, located, tokenizer)
    start = tokenizer.known_start()
    assert "" == sizes.texts[start]
    texts = tokenizer.decode_each(windows.ravel().tolist())
    marks = np.array([*map(is_mark, texts)]).reshape(windows.shape) & (windows != start)
    with torch.no_grad():
        patterns = plain(torch.from_numpy(windows), output_attentions=True).attentions
    for mass, layer in zip(found, map(np.asarray, patterns), strict=True):
        expected = [0.0] * layer.shape[1]
        for text, head, n, i in np.ndindex(*layer.shape):
            expected[head] += float(layer[text, head, n, i]) * marks[text, i] / len(windows)
        np.testing.assert_allclose(mass, expected, rtol=1e-5)
