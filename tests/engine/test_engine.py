"""The engine with its real worker: one computation, progress, cancelling, crashes, sources."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import poskernel_core as pk
from poskernel_core import Engine, Execution, Store
from poskernel_core.common.errors import BadRequest, Cancelled, ComputeFailed
from poskernel_core.common.specs import CorpusSpec, Request
from poskernel_core.data import corpora
from poskernel_core.engine.engine import describe_run
from poskernel_core.models import catalog
from poskernel_core.models.tokenizers import load_tokenizer
from poskernel_core.storage.statistics import StoredStatistics, read_checkpoint
from tests.support import builders

pytestmark = pytest.mark.slow

WAIT, CONTEXT, MANY = 300.0, 29, 2003


@pytest.fixture(scope="module")
def place(tmp_path_factory, model_dirs):
    """A folder with a small corpus, and ready windows enough for a pass of some seconds."""
    folder = tmp_path_factory.mktemp("engine")
    builders.mini_corpus(folder)
    np.save(folder / "many.npy", builders.random_ids(MANY, CONTEXT).numpy())
    return folder


@pytest.fixture(scope="module")
def engine(place):
    """One engine, and its worker, for the whole module."""
    made = Engine(Store(place / "store"), Execution(device="cpu"))
    yield made
    made.close()


def request(place, model_dirs, analysis="etc", corpus="mini.txt", **params):
    """A request on the tiny GPT-2."""
    many = corpus == "many.npy"
    run = describe_run(
        str(model_dirs["gpt2"]),
        corpus=CorpusSpec(name=str(place / corpus)),
        context=CONTEXT,
        windows=MANY if many else 7,
        query=11,
        start_token=not many,
    )
    return Request(analysis=analysis, run=run, params=params)


def until(condition):
    """Wait for what the worker is about to do."""
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def same(left, right, tolerance=1e-5):
    """Two results hold the same numbers."""
    assert set(left.values) == set(right.values)
    for name, array in left.values.items():
        np.testing.assert_allclose(array, right.values[name], rtol=tolerance, atol=tolerance)


def test_one_computation_for_two_visitors(engine, place, model_dirs, monkeypatch):
    """Two threads that ask at once get the same numbers of one pass, and see its progress."""
    events, results = [], []
    take = pk.Job.take
    monkeypatch.setattr(pk.Job, "take", lambda job, e: (events.append(dict(e)), take(job, e))[1])

    asked = request(place, model_dirs)
    threads = [
        threading.Thread(target=lambda: results.append(engine.result(asked, WAIT)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    same(*results, tolerance=0)
    assert results[0].provenance == results[1].provenance
    assert 1 == len([e for e in events if e["state"] == "done"])
    assert {"running", "done"} == {e["state"] for e in events}
    reading = [e for e in events if e.get("note") == "Reading windows of text"]
    assert reading
    assert all(e["total"] == 7 and 0 <= e["done"] <= 7 for e in reading)


def test_a_second_analysis_makes_no_second_pass(engine, place, model_dirs):
    """Another analysis, or other parameters, stand on the statistics that are there."""
    first = engine.result(request(place, model_dirs), WAIT)
    second = engine.result(request(place, model_dirs, "profile"), WAIT)
    third = engine.result(request(place, model_dirs, skip=0), WAIT)

    seconds = [r.provenance["pass_seconds"] for r in (first, second, third)]
    assert 1 == len(set(seconds))


def test_same_numbers_in_memory(engine, place, model_dirs):
    """What the worker computed is what this process computes from the same windows."""
    asked = request(place, model_dirs)
    located = catalog.locate(str(model_dirs["gpt2"]))
    windows = corpora.token_windows(
        asked.run.corpus, load_tokenizer(located), context=CONTEXT, windows=7, start_token=True
    ).tokens

    gathered = pk.run_pass(pk.load(located.spec.name, device="cpu"), windows)

    same(engine.result(asked, WAIT), pk.analyse("etc", gathered))


def test_cancel_and_a_click_meanwhile(engine, place, model_dirs):
    """While a long pass runs, stored statistics still answer; then the pass is cancelled."""
    engine.result(request(place, model_dirs), WAIT)
    long = request(place, model_dirs, corpus="many.npy")
    job = engine.submit(long)
    until(lambda: job.done > 0 or job.ended)

    click = request(place, model_dirs, "kernel-map", head="L2H4")
    assert engine.result(click, WAIT) is not None
    assert not job.ended
    engine.cancel(long)

    assert job.wait(WAIT)
    assert ("cancelled", Cancelled) == (job.state, type(job.error))
    assert engine.cached(long) is None
    assert engine.result(request(place, model_dirs, skip=1), WAIT) is not None


def test_killed_and_resumed(place, model_dirs, monkeypatch):
    """A killed worker costs no finished shard, and the numbers are those of an unbroken pass."""
    monkeypatch.setenv("POSKERNEL_CHECKPOINT_SECONDS", "0")
    asked = request(place, model_dirs, corpus="many.npy")
    engine = Engine(Store(place / "killed"), Execution(device="cpu"))
    job = engine.submit(asked)
    until(lambda: job.done > 0 or job.ended)
    assert "running" == job.state
    os.kill(engine.worker_pid, signal.SIGKILL)

    with pytest.raises(ComputeFailed, match="goes on where it stopped"):
        engine.result(asked, WAIT)
    assert engine.log.is_file()
    engine.close()

    other = Engine(Store(place / "killed"), Execution(device="cpu"))
    result = other.result(asked, WAIT)
    header = StoredStatistics.open(other.store, asked.run).header
    other.close()
    assert 0 < header.resumed_at_window < MANY
    ids = np.load(place / "many.npy")
    model = pk.load(str(model_dirs["gpt2"]), device="cpu")
    whole = pk.run_pass(model, ids, positions=asked.run.positions, start_token=False, batch=64)
    same(result, pk.analyse("etc", whole), tolerance=1e-4)
    assert read_checkpoint(other.store, asked.run) is None


@pytest.mark.usefixtures("near_worker", "unchecked")
def test_two_engines_on_one_store(place, model_dirs, monkeypatch):
    """The second worker waits for the first one's pass instead of repeating it."""
    notes, take = {}, pk.Job.take

    def listen(job, event):
        notes.setdefault(id(job), set()).add(event.get("note"))
        take(job, event)

    monkeypatch.setattr(pk.Job, "take", listen)
    asked = request(place, model_dirs, corpus="many.npy")
    engines = [Engine(Store(place / "both"), Execution(device="cpu")) for _ in range(2)]
    jobs = [engine.submit(asked) for engine in engines]
    for job in jobs:
        assert job.wait(WAIT)
    results = [engine.result(asked, WAIT) for engine in engines]
    for engine in engines:
        engine.close()

    assert ["done", "done"] == [job.state for job in jobs]
    assert 1 == sum("Reading windows of text" in seen for seen in notes.values())
    same(*results, tolerance=0)


@pytest.mark.usefixtures("near_worker", "unchecked")
def test_damaged_entries_are_computed_again(engine, place, model_dirs):
    """Every entry of a store overwritten: the same numbers come back from a new computation."""
    asked = request(place, model_dirs)
    before = engine.result(asked, WAIT)
    engine.close()
    files = list(engine.store.directory.rglob("*.val"))
    for file in files:
        file.write_bytes(b"x" * 99)
    assert files

    assert engine.cached(asked) is None
    assert StoredStatistics.open(Store(engine.store.directory), asked.run) is None
    after = engine.result(asked, WAIT)

    same(before, after)


@pytest.mark.usefixtures("near_worker")
def test_a_store_that_is_too_small(tmp_path, place, model_dirs, monkeypatch):
    """Where not all can be kept, that is said; the pass is not repeated for ever."""
    monkeypatch.setenv("POSKERNEL_CACHE_GB", "0.0002")
    engine = Engine(Store(tmp_path / "tiny"), Execution(device="cpu"))
    job = engine.submit(request(place, model_dirs))

    ended = job.wait(30.0)
    engine.close()

    assert ended
    assert ComputeFailed is type(job.error)
    monkeypatch.setenv("POSKERNEL_CACHE_GB", "0.0001")
    with pytest.raises(BadRequest, match=r"the store holds 0\.1"):
        Engine(Store(tmp_path / "tiny"), Execution(device="cpu")).submit(request(place, model_dirs))


def test_cancel_while_waiting_for_its_turn(engine, place, model_dirs):
    """A pass that waits behind another is cancelled at once, and the other goes on."""
    base = request(place, model_dirs, "profile", "many.npy")
    asked = [
        base.model_copy(update={"run": base.run.model_copy(update={"windows": MANY - fewer})})
        for fewer in (1, 2)
    ]
    first, second = (engine.submit(each) for each in asked)
    until(lambda: first.state == "running")
    engine.cancel(asked[1])
    assert second.wait(WAIT)
    assert ("cancelled", False) == (second.state, first.ended)
    assert first.wait(WAIT)
    assert "done" == first.state


@pytest.mark.usefixtures("near_worker")
def test_a_result_is_read_once(engine, place, model_dirs):
    """What was read lately stays in memory, also where the store has dropped it meanwhile."""
    asked = request(place, model_dirs)
    engine.result(asked, WAIT)
    first = engine.cached(asked)
    assert first is engine.cached(asked)
    for key in [*engine.store.keys()]:
        engine.store.drop(key)
    assert first is engine.cached(asked)
    engine.close()
    assert engine.cached(asked) is None
