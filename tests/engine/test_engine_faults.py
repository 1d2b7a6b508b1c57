"""The engine and its worker where much comes at once, the disk is full, or passes are killed."""

import os
import shutil
import signal
import time

import numpy as np
import pytest

from poskernel_core import Engine, Execution, Store
from poskernel_core.common.errors import ComputeFailed, NoSpace, ReadOnlyStore, StoreFailed
from poskernel_core.common.shards import WHOLE
from poskernel_core.common.specs import CorpusSpec, Request
from poskernel_core.engine import execute
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.provenance import software
from poskernel_core.models import catalog
from poskernel_core.passes import runner as gather
from poskernel_core.passes.worker_context import WorkerContext
from poskernel_core.storage.shards import partials_of
from poskernel_core.storage.statistics import StoredStatistics, read_checkpoint
from tests.support import builders
from tests.support.disks import fill, read_only, small_disk

pytestmark = pytest.mark.slow

WAIT, CONTEXT = 120.0, 29


@pytest.fixture(scope="module")
def ids(tmp_path_factory):
    """A file of ready windows, enough for some batches."""
    file = tmp_path_factory.mktemp("ids") / "ids.npy"
    np.save(file, builders.random_ids(301, CONTEXT).numpy())
    return file


def etc(model, ids, windows, **params):
    """A request that needs a pass over that many windows."""
    run = describe_run(
        str(model), corpus=CorpusSpec(name=str(ids)), context=CONTEXT, windows=windows,
        start_token=False,
    )  # fmt: skip
    return Request(analysis="etc", run=run, params=params)


def scores(model, seed):
    """A request that runs the model itself, in the other lane."""
    run = describe_run(str(model), seed=seed, start_token=False)
    return Request(analysis="induction-scores", run=run, params={"period": 5, "samples": 7})


@pytest.mark.usefixtures("near_worker", "unchecked")
def test_ten_at_once_on_a_cold_worker(tmp_path, model_dirs, ids):
    """Passes and experiments on four models, in two lanes that both load: all are answered."""
    engine = Engine(Store(tmp_path), Execution(device="cpu"))
    asked = []
    for number, name in enumerate(("gpt2", "llama", "gpt_neox", "opt", "gpt2")):
        asked += [etc(model_dirs[name], ids, 3 + number), scores(model_dirs[name], number)]

    jobs = [engine.submit(request) for request in asked]
    for job in jobs:
        assert job.wait(WAIT)
    engine.close()

    assert [(job.state, job.error) for job in jobs] == [("done", None)] * 10


@pytest.mark.usefixtures("near_worker", "unchecked")
def test_what_was_dropped_before_it_was_computed(tmp_path, model_dirs, ids, monkeypatch):
    """Another process' results drive statistics out: they are gathered again, or it is said."""
    dropped, gather_missing = [], execute.gather_missing

    def then_dropped(shared, asked, *rest):
        gather_missing(shared, asked, *rest)
        if len(dropped) < times:
            dropped.append(asked)
            for key in list(shared.store.keys()):
                shared.store.drop(key)

    monkeypatch.setattr(execute, "gather_missing", then_dropped)
    engine, times = Engine(Store(tmp_path), Execution(device="cpu")), 2
    assert engine.result(etc(model_dirs["gpt2"], ids, 3), WAIT) is not None
    assert 2 == len(dropped)

    times = 99
    job = engine.submit(etc(model_dirs["gpt2"], ids, 4))
    assert job.wait(WAIT)
    assert "dropped as soon as they were written" in str(job.error)
    engine.close()


def test_loading_in_many_threads(model_dirs):
    """Ten threads that load different models at once get ten whole models."""
    from concurrent.futures import ThreadPoolExecutor

    from poskernel_core.forward import loading

    names = ["gpt2", "llama", "gpt_neox", "opt", "attn_only"] * 2
    with ThreadPoolExecutor(10) as threads:
        loaded = list(
            threads.map(
                lambda name: loading.load(catalog.locate(str(model_dirs[name])), "cpu"), names
            )
        )

    for name, model in zip(names, loaded, strict=True):
        assert str(model_dirs[name]) == model.located.spec.name
        assert all(parameter.isfinite().all() for parameter in model.module.parameters())


@pytest.mark.usefixtures("near_worker")
def test_a_full_disk(tmp_path, model_dirs, ids):
    """A pass that cannot be written ends in one sentence, and the same worker goes on later."""
    with small_disk(tmp_path / "disk", 8) as disk:
        engine = Engine(Store(disk / "store"), Execution(device="cpu"))
        quick = etc(model_dirs["gpt2"], ids, 3)
        assert engine.result(quick, WAIT) is not None
        worker, filler = engine.worker_pid, fill(disk)

        with pytest.raises(NoSpace, match=r"No space is left .* are needed, .* are free"):
            engine.result(etc(model_dirs["gpt2"], ids, 5), WAIT)
        assert engine.cached(quick) is not None
        os.truncate(filler, filler.stat().st_size - 200_000)  # for the store's rows, not a pass
        with pytest.raises(NoSpace):
            engine.result(etc(model_dirs["gpt2"], ids, 6), WAIT)
        filler.unlink()

        assert engine.result(etc(model_dirs["gpt2"], ids, 6), WAIT) is not None
        assert engine.result(scores(model_dirs["gpt2"], 1), WAIT) is not None
        assert worker == engine.worker_pid
        engine.close()


def test_the_disk_fills_up_during_a_pass(tmp_path, model_dirs, ids, monkeypatch):
    """No lane is lost when the end of a pass, and the worker's log, can no longer be written."""
    with small_disk(tmp_path / "disk", 8) as disk:
        store = Store(disk / "store")
        request = etc(model_dirs["gpt2"], ids, 5)
        filler = []

        def then_full(*_):
            filler.append(fill(disk))

        monkeypatch.setattr(gather.streaming, "finish", _before(gather.streaming.finish, then_full))
        with pytest.raises(StoreFailed, match="No space is left"):
            gather.gather_run(
                WorkerContext(store), request.run, Execution(device="cpu"), {}, _nobody
            )
        assert StoredStatistics.open(store, request.run) is None
        filler[0].unlink()
        monkeypatch.undo()

        gather.gather_run(WorkerContext(store), request.run, Execution(device="cpu"), {}, _nobody)
        assert StoredStatistics.open(store, request.run) is not None
        store.close()


def _before(function, first):
    def both(*args):
        first()
        return function(*args)

    return both


def _nobody(done, total, note):
    """Nobody looks."""


@pytest.mark.usefixtures("near_worker")
def test_the_cache_directory_vanishes(tmp_path, model_dirs, ids):
    """Deleted under a running engine, it is made again, and everything goes on."""
    engine = Engine(Store(tmp_path / "store"), Execution(device="cpu"))
    assert engine.result(etc(model_dirs["gpt2"], ids, 3), WAIT) is not None
    worker = engine.worker_pid
    shutil.rmtree(tmp_path / "store")

    assert engine.cached(etc(model_dirs["gpt2"], ids, 3)) is not None  # in memory still
    assert engine.result(etc(model_dirs["gpt2"], ids, 3, skip=5), WAIT) is not None
    assert worker == engine.worker_pid
    engine.close()


@pytest.mark.usefixtures("near_worker")
def test_a_directory_that_cannot_be_written(tmp_path, model_dirs, ids):
    """What is computed is served, also by the command line; anything new is refused at once."""
    request = etc(model_dirs["gpt2"], ids, 3)
    engine = Engine(Store(tmp_path), Execution(device="cpu"))
    before = engine.result(request, WAIT)
    engine.close()
    engine.store.close()
    with read_only(tmp_path) as directory:
        served = Engine(Store(directory), Execution(device="cpu"))
        np.testing.assert_array_equal(before.values["etc"], served.cached(request).values["etc"])
        with pytest.raises(ReadOnlyStore, match="what is computed already is shown"):
            served.result(etc(model_dirs["gpt2"], ids, 4), WAIT)
        assert served.worker_pid is None
        served.close()


def test_a_directory_that_is_closed_under_a_server(tmp_path, model_dirs, ids):
    """New work is refused at once, in a sentence, and no worker is started in vain."""
    engine = Engine(Store(tmp_path), Execution(device="cpu"))
    assert engine.cached(etc(model_dirs["gpt2"], ids, 3)) is None
    with (
        read_only(tmp_path),
        pytest.raises(ReadOnlyStore, match="what is computed already is shown"),
    ):
        engine.submit(etc(model_dirs["gpt2"], ids, 3))
    assert engine.worker_pid is None
    engine.store.close()


def _read(store, run):
    """How many windows of ten groups of fifteen are read for good."""
    written = len(partials_of(store, run, "keys", WHOLE))
    kept = (read_checkpoint(store, run, group=group) for group in range(10))
    return 15 * written + sum(found[0]["done"] for found in kept if found is not None)


def test_a_pass_that_is_killed_again_and_again(tmp_path, model_dirs, ids, monkeypatch):
    """However soon after its first batch it is killed, a pass gets further each time."""
    monkeypatch.setenv("POSKERNEL_CHECKPOINT_SECONDS", "3600")
    engine = Engine(Store(tmp_path / "store"), Execution(device="cpu", batch=3))
    request, reached = etc(model_dirs["gpt2"], ids, 151), []

    for _ in range(2):
        job = engine.submit(request)
        end = time.monotonic() + WAIT
        while job.done <= max(reached, default=0) + 3 and not job.ended:
            assert time.monotonic() < end, job
            time.sleep(0.001)
        os.kill(engine.worker_pid, signal.SIGKILL)
        assert job.wait(WAIT)
        assert ComputeFailed is type(job.error)
        reached.append(_read(engine.store, request.run))
    engine.close()
    for folder in ("store", "whole"):
        place = WorkerContext(Store(tmp_path / folder))
        gather.gather_run(place, request.run, engine.execution, software(), _nobody)

    assert 0 < reached[0] < reached[1] < 151
    broken, whole = (
        StoredStatistics.open(Store(tmp_path / folder), request.run)
        for folder in ("store", "whole")
    )
    assert (reached[1], 0) == tuple(x.header.resumed_at_window for x in (broken, whole))
    for layer in range(whole.header.n_layers):
        for name, array in whole.layer(layer).items():
            np.testing.assert_array_equal(array, broken.layer(layer)[name])


def test_non_finite_sums(tmp_path, model_dirs, ids, monkeypatch):
    """Keys that overflow are an error that names the layer, and nothing is stored."""
    store, request = Store(tmp_path), etc(model_dirs["gpt2"], ids, 3)
    seen = gather.streaming.STATISTICS["keys"].attention

    def overflow(self, call, batch):
        seen(self, call, batch)
        if call.layer == 1:
            self.sums["key_sum"][1, 0, 5] = np.inf

    monkeypatch.setattr(gather.streaming.STATISTICS["keys"], "attention", overflow)
    with pytest.raises(ComputeFailed, match=r"layer 1 are not finite \(key_sum\)"):
        gather.gather_run(WorkerContext(store), request.run, Execution(device="cpu"), {}, _nobody)
    assert [] == list(store.keys())
    store.close()


def test_one_model_and_one_cut_for_both_lanes(tmp_path, model_dirs, ids, monkeypatch):
    """Pass and experiment take the same loaded model, tokenizer and windows."""
    from poskernel_core.passes import worker_context

    loads, cuts = [], []
    load, prepare = worker_context.load, worker_context.prepare
    monkeypatch.setattr(worker_context, "load", lambda *a: (loads.append(a), load(*a))[1])
    monkeypatch.setattr(worker_context, "prepare", lambda *a: (cuts.append(a), prepare(*a))[1])
    place, run = WorkerContext(Store(tmp_path)), etc(model_dirs["gpt2"], ids, 5).run
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


@pytest.mark.usefixtures("near_worker", "unchecked")
def test_a_worker_that_cannot_be_started(tmp_path, monkeypatch):
    """One sentence, nobody waits for a job that never was, and the next question starts another."""
    engine = Engine(Store(tmp_path), Execution(device="cpu"))
    request = Request(analysis="etc", run=describe_run("demo-attn-2l", windows=5, context=16))

    def no_memory(*_given, **_named):
        raise OSError(12, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr("poskernel_core.engine.process.subprocess.Popen", no_memory)
        for _ in range(2):
            with pytest.raises(ComputeFailed, match=r"not be started \(Cannot allocate memory\): "):
                engine.result(request, 5)
        assert engine.running(request) is None
    try:
        assert engine.result(request, 300) is not None
    finally:
        engine.close()
        engine.store.close()
