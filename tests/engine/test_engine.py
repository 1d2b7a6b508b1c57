"""The engine with its real worker: one computation, cancelling, kills, what others have dropped.

And where the disk is full, cannot be written or has vanished.
"""

import json
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core import Engine, Execution, Store
from poskernel_core.common.errors import (
    Cancelled,
    ComputeFailed,
    NoSpace,
    ReadOnlyStore,
)
from poskernel_core.common.modules import environment
from poskernel_core.common.shards import WHOLE
from poskernel_core.common.specs import CorpusSpec, Request
from poskernel_core.engine import execute
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.plan import make_plan
from poskernel_core.engine.provenance import software
from poskernel_core.forward import loading
from poskernel_core.models import catalog
from poskernel_core.passes import runner
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.storage.shards import partials_of
from poskernel_core.storage.statistics import StoredStatistics, read_checkpoint
from tests.support import builders, until
from tests.support.disks import fill, read_only, small_disk
from tests.support.far_worker import AT_REPORTS, DIES, worker_runs

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


ENDLESS = f"""
def holds(done, total):
    return total == {MANY} and done
{AT_REPORTS}"""
"""The long pass is under way until it is cancelled."""


def test_a_process_of_its_own(fresh_engine, asked, monkeypatch):
    """Two threads get the same numbers of one pass, and see its progress.

    While a long pass runs, stored statistics still answer; then the pass is cancelled.
    """
    worker_runs(monkeypatch, ENDLESS)
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


KILLED = f"""
{DIES}
def holds(done, total):
    if done > %s:
        die()
{AT_REPORTS}"""


def test_a_pass_that_is_killed_again_and_again(tmp_path, asked, monkeypatch):
    """However soon after its first batch it is killed, a pass gets further each time.

    It goes on where it stopped, and no bit is different in the end.
    """
    monkeypatch.setenv("POSKERNEL_CHECKPOINT_SECONDS", "3600")
    engine = Engine(Store(tmp_path / "store"), Execution(device="cpu", batch=3))
    request, reached = asked(151), []
    for _ in range(2):
        worker_runs(monkeypatch, KILLED % (max(reached, default=0) + 3))
        with pytest.raises(ComputeFailed, match="goes on where it stopped"):
            engine.result(request, WAIT)
        reached.append(_read(engine.store, request.run))
    assert (engine.store.directory / "worker.log").is_file()
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


@pytest.mark.usefixtures("near_worker")
def test_a_full_disk(tmp_path, model_dirs, asked):
    """A pass that cannot be written ends in one sentence, and the same worker goes on later."""
    with small_disk(tmp_path / "disk", 8) as disk:
        engine = Engine(Store(disk / "store"), CPU)
        assert engine.result(asked(3), WAIT) is not None
        worker, filler = engine.worker_pid, fill(disk)

        with pytest.raises(NoSpace, match=r"No space is left .* are needed, .* are free"):
            engine.result(asked(5), WAIT)
        assert engine.cached(asked(3)) is not None
        os.truncate(filler, filler.stat().st_size - 200_000)  # for the store's rows, not a pass
        with pytest.raises(NoSpace):
            engine.result(asked(6), WAIT)
        filler.unlink()

        assert engine.result(asked(6), WAIT) is not None
        assert engine.result(scores(model_dirs["gpt2"], 1), WAIT) is not None
        assert worker == engine.worker_pid
        engine.close()


@pytest.mark.usefixtures("near_worker")
def test_the_cache_directory_vanishes(tmp_path, asked):
    """Deleted under a running engine, it is made again, and everything goes on."""
    engine = Engine(Store(tmp_path / "store"), CPU)
    assert engine.result(asked(3), WAIT) is not None
    worker = engine.worker_pid
    shutil.rmtree(tmp_path / "store")

    assert engine.cached(asked(3)) is not None  # in memory still
    assert engine.result(asked(3, skip=5), WAIT) is not None
    assert worker == engine.worker_pid
    engine.close()


@pytest.mark.usefixtures("near_worker")
def test_a_directory_that_cannot_be_written(tmp_path, asked):
    """What is computed is served; anything new is refused at once, and no worker is started."""
    engine = Engine(Store(tmp_path), CPU)
    before = engine.result(asked(3), WAIT)
    engine.close()
    engine.store.close()
    opened = Engine(Store(tmp_path), CPU)
    with read_only(tmp_path) as directory:
        for served in (opened, Engine(Store(directory), CPU)):
            found = served.cached(asked(3))
            np.testing.assert_array_equal(before.values["etc"], found.values["etc"])
            with pytest.raises(ReadOnlyStore, match="what is computed already is shown"):
                served.submit(asked(4))
            assert served.worker_pid is None
            served.store.close()


WORKER = """
import runpy, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from poskernel_core.engine import execute

def compute(store, plan, report):
    report(0, 2, "Computing")
    threading.main_thread().join()
    ThreadPoolExecutor(1).submit(int)

execute.compute = compute
threading.Timer(2, int).start()
runpy.run_module("poskernel_core.engine.worker", run_name="__main__")
"""
"""Python waits for the timer at its end, and takes no new work for its pools meanwhile."""


def test_it_ends_without_a_word(tmp_path):
    """In the middle of the arithmetic on stored sums, which nobody waits for any longer."""
    run = describe_run("demo-attn-2l", context=32, windows=20)
    plan = make_plan(Request(analysis="etc", run=run))
    execution = Execution(device="cpu").model_dump()
    task = {"key": "a", "plan": plan.as_json(), "execution": execution, "client": ""}
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, tmp_path], env=environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    print(json.dumps({"tasks": [task]}), file=worker.stdin, flush=True)
    assert "Computing" in worker.stdout.readline()
    said, complaints = worker.communicate(timeout=60)

    assert (0, "", "") == (worker.returncode, said, complaints)
