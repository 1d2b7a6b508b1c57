"""The engine with its real worker: one computation, cancelling, kills, what others have dropped."""

import os
import signal
import threading

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core import Engine, Execution, Store
from poskernel_core.common.errors import Cancelled, ComputeFailed
from poskernel_core.common.shards import WHOLE
from poskernel_core.common.specs import CorpusSpec, Request
from poskernel_core.engine import execute
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.provenance import software
from poskernel_core.forward import loading
from poskernel_core.models import catalog
from poskernel_core.passes import runner, worker_context
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.storage.shards import partials_of
from poskernel_core.storage.statistics import StoredStatistics, read_checkpoint
from tests.support import builders, until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unchecked")]

WAIT, CONTEXT, MANY = 300.0, 29, 2003
CPU = Execution(device="cpu")


@pytest.fixture(scope="module")
def ids(tmp_path_factory):
    """A file of ready windows, enough for a pass of some seconds."""
    file = tmp_path_factory.mktemp("ids") / "ids.npy"
    np.save(file, builders.random_ids(MANY, CONTEXT).numpy())
    return file


@pytest.fixture
def asked(ids, model_dirs):
    """A request on a tiny model, the same pass for the same number of windows."""

    def request(windows=7, analysis="etc", model="gpt2", **params):
        run = describe_run(
            str(model_dirs[model]), corpus=CorpusSpec(name=str(ids)), context=CONTEXT,
            windows=windows, query=11, start_token=False,
        )  # fmt: skip
        return Request(analysis=analysis, run=run, params=params)

    return request


def scores(model, seed):
    """A request that runs the model itself, in the other lane."""
    run = describe_run(str(model), seed=seed, start_token=False)
    return Request(analysis="induction-scores", run=run, params={"period": 5, "samples": 7})


def same(left, right, tolerance=0.0):
    """Two results hold the same numbers."""
    assert set(left.values) == set(right.values)
    for name, array in left.values.items():
        np.testing.assert_allclose(array, right.values[name], rtol=tolerance, atol=tolerance)


def test_a_process_of_its_own(fresh_engine, asked, monkeypatch):
    """Two threads get the same numbers of one pass, and see its progress.

    While a long pass runs, stored statistics still answer; then the pass is cancelled.
    """
    events, results, take = [], [], pk.Job.take
    monkeypatch.setattr(pk.Job, "take", lambda job, e: (events.append(dict(e)), take(job, e))[1])

    def ask():
        results.append(fresh_engine.result(asked(), WAIT))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    same(*results)
    assert results[0].provenance == results[1].provenance
    assert 1 == len([e for e in events if e["state"] == "done"])
    assert {"running", "done"} == {e["state"] for e in events}
    reading = [e for e in events if e.get("note") == "Reading windows of text"]
    assert reading
    assert all(e["total"] == 7 and 0 <= e["done"] <= 7 for e in reading)

    long = asked(MANY)
    job = fresh_engine.submit(long)
    until(lambda: job.done > 0 or job.ended, WAIT)
    assert fresh_engine.result(asked(analysis="kernel-map", head="L2H4"), WAIT) is not None
    assert not job.ended
    fresh_engine.cancel(long)
    assert job.wait(WAIT)
    assert ("cancelled", Cancelled) == (job.state, type(job.error))
    assert fresh_engine.cached(long) is None
    assert fresh_engine.result(asked(skip=1), WAIT) is not None


@pytest.mark.usefixtures("near_worker")
def test_two_engines_on_one_store(tmp_path, asked, monkeypatch):
    """The second worker waits for the first one's pass instead of repeating it."""
    notes, take = {}, pk.Job.take

    def listen(job, event):
        notes.setdefault(id(job), set()).add(event.get("note"))
        take(job, event)

    monkeypatch.setattr(pk.Job, "take", listen)
    engines = [Engine(Store(tmp_path), CPU) for _ in range(2)]
    jobs = [engine.submit(asked(MANY)) for engine in engines]
    assert all(job.wait(WAIT) for job in jobs)
    results = [engine.result(asked(MANY), WAIT) for engine in engines]
    for engine in engines:
        engine.close()

    assert ["done", "done"] == [job.state for job in jobs]
    assert 1 == sum("Reading windows of text" in seen for seen in notes.values())
    same(*results)


@pytest.mark.usefixtures("near_worker")
def test_damaged_entries_are_computed_again(fresh_engine, asked):
    """Every entry of a store overwritten: the same numbers come back from a new computation."""
    before = fresh_engine.result(asked(), WAIT)
    fresh_engine.close()
    files = list(fresh_engine.store.directory.rglob("*.val"))
    assert files
    for file in files:
        file.write_bytes(b"x" * 99)

    assert fresh_engine.cached(asked()) is None
    assert StoredStatistics.open(fresh_engine.store, asked().run) is None
    same(before, fresh_engine.result(asked(), WAIT))


@pytest.mark.usefixtures("near_worker")
def test_ten_at_once_on_a_cold_worker(fresh_engine, asked, model_dirs):
    """Passes and experiments on four models, in two lanes that both load: all are answered."""
    models = ("gpt2", "llama", "gpt_neox", "opt", "gpt2")
    jobs = []
    for number, name in enumerate(models):
        for request in (asked(3 + number, model=name), scores(model_dirs[name], number)):
            jobs.append(fresh_engine.submit(request))
    assert all(job.wait(WAIT) for job in jobs)
    assert [(job.state, job.error) for job in jobs] == [("done", None)] * 10


@pytest.mark.usefixtures("near_worker")
def test_what_was_dropped_before_it_was_computed(fresh_engine, asked, monkeypatch):
    """Another process' results drive statistics out: they are gathered again, or it is said."""
    dropped, gather_missing = [], execute.gather_missing

    def then_dropped(shared, plan, *rest):
        gather_missing(shared, plan, *rest)
        if len(dropped) < times:
            dropped.append(plan)
            for key in list(shared.store.keys()):
                shared.store.drop(key)

    monkeypatch.setattr(execute, "gather_missing", then_dropped)
    times = 2
    assert fresh_engine.result(asked(3), WAIT) is not None
    assert 2 == len(dropped)
    times = 99
    job = fresh_engine.submit(asked(4))
    assert job.wait(WAIT)
    assert "dropped as soon as they were written" in str(job.error)


def test_loading_in_many_threads(model_dirs):
    """Ten threads that load different models at once get ten whole models."""
    from concurrent.futures import ThreadPoolExecutor

    names = ["gpt2", "llama", "gpt_neox", "opt", "attn_only"] * 2
    located = [catalog.locate(str(model_dirs[name])) for name in names]
    with ThreadPoolExecutor(10) as threads:
        loaded = list(threads.map(lambda each: loading.load(each, "cpu"), located))

    for each, model in zip(located, loaded, strict=True):
        assert each.spec.name == model.located.spec.name
        assert all(parameter.isfinite().all() for parameter in model.module.parameters())


def _read(store, run):
    """How many windows of ten groups of fifteen are read for good."""
    written = len(partials_of(store, run, "keys", WHOLE))
    kept = (read_checkpoint(store, run, group=group) for group in range(10))
    return 15 * written + sum(found[0]["done"] for found in kept if found is not None)


def test_a_pass_that_is_killed_again_and_again(tmp_path, asked, monkeypatch):
    """However soon after its first batch it is killed, a pass gets further each time.

    It goes on where it stopped, and no bit is different in the end.
    """
    monkeypatch.setenv("POSKERNEL_CHECKPOINT_SECONDS", "3600")
    engine = Engine(Store(tmp_path / "store"), Execution(device="cpu", batch=3))
    request, reached = asked(151), []
    for _ in range(2):
        job = engine.submit(request)
        until(lambda job=job: job.done > max(reached, default=0) + 3 or job.ended, WAIT, 0.001)
        os.kill(engine.worker_pid, signal.SIGKILL)
        with pytest.raises(ComputeFailed, match="goes on where it stopped"):
            engine.result(request, WAIT)
        reached.append(_read(engine.store, request.run))
    assert engine.log.is_file()
    engine.close()
    stores = [Store(tmp_path / folder) for folder in ("store", "whole")]
    for store in stores:
        given = WorkerContext(store), request.run, engine.execution, software()
        runner.gather_run(*given, lambda *_: None)
        assert read_checkpoint(store, request.run) is None

    assert 0 < reached[0] < reached[1] < 151
    broken, whole = (StoredStatistics.open(store, request.run) for store in stores)
    assert (reached[1], 0) == tuple(x.header.resumed_at_window for x in (broken, whole))
    for layer in range(whole.header.n_layers):
        for name, array in whole.layer(layer).items():
            np.testing.assert_array_equal(array, broken.layer(layer)[name])


def test_one_model_and_one_cut_for_both_lanes(tmp_path, asked, model_dirs, monkeypatch):
    """Pass and experiment take the same loaded model, tokenizer and windows."""
    loads, cuts = [], []
    load, prepare = worker_context.load, worker_context.prepare
    monkeypatch.setattr(worker_context, "load", lambda *a: (loads.append(a), load(*a))[1])
    monkeypatch.setattr(worker_context, "prepare", lambda *a: (cuts.append(a), prepare(*a))[1])
    place, run = WorkerContext(Store(tmp_path)), asked(5).run
    located = catalog.locate(str(model_dirs["gpt2"]))

    models = [place.models.take(located, "cpu") for _ in range(3)]
    made = [place.prepare(run, Execution(), located, None) for _ in range(3)]
    alone = place.models.take(located, "cpu", "bfloat16")

    assert models[0] is models[1] is models[2] is not alone
    assert (2, 1) == (len(loads), len(cuts))
    for windows, plan in made[1:]:
        np.testing.assert_array_equal(made[0][0], windows)
        assert windows is not made[0][0]
        assert plan == made[0][1]
    other = run.model_copy(update={"windows": 4})
    assert 4 == len(place.prepare(other, Execution(), located, None)[0])


@pytest.mark.usefixtures("near_worker")
def test_a_worker_that_cannot_be_started(fresh_engine, asked, monkeypatch):
    """One sentence, nobody waits for a job that never was, and the next question starts another."""

    def no_memory(*_given, **_named):
        raise OSError(12, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr("poskernel_core.engine.process.subprocess.Popen", no_memory)
        for _ in range(2):
            with pytest.raises(ComputeFailed, match=r"not be started \(Cannot allocate memory\): "):
                fresh_engine.result(asked(), 5)
        assert fresh_engine.running(asked()) is None
    assert fresh_engine.result(asked(), 300) is not None
