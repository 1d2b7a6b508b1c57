"""Results while they form: those of the first windows, stored as the results of shorter runs."""

import threading
import time

import numpy as np
import pytest

from poskernel_core.common.errors import Cancelled, NoSpace
from poskernel_core.common.specs import CorpusSpec, Execution, Request
from poskernel_core.engine import worker as worker_module
from poskernel_core.engine.engine import Engine, describe_run
from poskernel_core.engine.job import Job
from poskernel_core.engine.plan import make_plan
from poskernel_core.engine.worker import Budget
from poskernel_core.storage.statistics import missing_statistics
from poskernel_core.storage.store import Store
from tests.support import builders
from tests.support.fake_worker import until

WINDOWS, CONTEXT, QUERY = 23, 19, 17
STAGES = [4, 8, 10]


@pytest.fixture
def run(model_dirs, tmp_path):
    """Ten groups of two windows of a tiny GPT-2, in a file of more windows."""
    np.save(tmp_path / "ids.npy", builders.random_ids(97, CONTEXT, seed=3).numpy())
    corpus = CorpusSpec(name=str(tmp_path / "ids.npy"))
    return describe_run(
        str(model_dirs["gpt2"]), corpus=corpus, context=CONTEXT, windows=WINDOWS, query=QUERY,
        start_token=False,
    )  # fmt: skip


@pytest.fixture
def engine(tmp_path, near_worker, monkeypatch, unchecked):
    """An engine whose pictures may cost what they like."""
    monkeypatch.setattr(worker_module, "SHARE", 1e9)
    made = Engine(Store(tmp_path / "store"), Execution(device="cpu", batch=4))
    yield made
    made.close()
    made.store.close()


def asked(run, analysis="etc", **params):
    return Request(analysis=analysis, run=run, params=params)


def formed(engine, request):
    """What a job has so far."""
    plan = make_plan(request)
    return engine.cached(plan.of_stage(engine.running(plan).formed, QUERY))


def watched(engine, request, query=QUERY):
    """How many windows each result is of, and the results."""
    found = list(engine.watch(request, query))
    return [each.provenance["windows"] for each in found], found


def held_between_stages(monkeypatch):
    """A list of events: the worker waits after each stage until the test lets it go on."""
    go_on, reached = threading.Semaphore(0), threading.Semaphore(0)
    on_stage = worker_module.Worker._on_stage

    def held(self, task, budget, stage):
        ends = on_stage(self, task, budget, stage)
        reached.release()
        assert go_on.acquire(timeout=60)
        return ends

    monkeypatch.setattr(worker_module.Worker, "_on_stage", held)
    return reached, go_on


def test_the_last_is_the_whole_result(engine, run, monkeypatch):
    """Whoever watches gets it at the end, at all positions, also if a picture on the way fails."""
    form = worker_module.execute.form

    def failing(store, plan, stage, query):
        if stage.windows == 4:
            raise KeyError(stage.windows)
        return form(store, plan, stage, query)

    monkeypatch.setattr(worker_module.execute, "form", failing)
    windows, found = watched(engine, asked(run))

    assert 20 == windows[-1]
    assert 4 not in windows
    assert len(run.positions) == found[-1].values["etc"].shape[2]
    assert [20] == watched(engine, asked(run))[0]


def test_a_pass_whose_length_is_a_parameter_does_not_form(engine, run):
    """A part of its texts is no answer to a question that says how many there are."""
    run = run.model_copy(update={"windows": 20})

    assert 1 == len(list(engine.watch(asked(run, "helix", tokens=23, prompts="repeated"), QUERY)))


def test_whoever_looks_elsewhere_is_served_at_the_next_stage(engine, run, monkeypatch):
    """The position that was looked at before forms as well."""
    reached, go_on = held_between_stages(monkeypatch)
    job = engine.submit(asked(run), looks_at=QUERY)
    assert reached.acquire(timeout=60)
    assert job is engine.submit(asked(run), looks_at=11)
    time.sleep(0.1)
    for _ in range(2):
        go_on.release()
        assert reached.acquire(timeout=60)
    for _ in STAGES:
        go_on.release()
    assert job.wait(60)

    plan = make_plan(asked(run))
    there = {
        n: [query for query in (QUERY, 11) if engine.store.has(plan.of_stage(n, query).key)]
        for n in (4, 10)
    }
    assert {4: [QUERY], 10: [QUERY, 11]} == there


def test_two_questions_form_from_one_pass(engine, run, monkeypatch):
    """The second waits for the pass of the first, and is told as well."""
    reached, go_on = held_between_stages(monkeypatch)
    etc = engine.submit(asked(run), looks_at=QUERY)
    kernel = engine.submit(asked(run, "kernel", query=QUERY), looks_at=QUERY)
    profile = engine.submit(asked(run, "previous-token"), looks_at=QUERY)  # needs another pass too
    time.sleep(0.1)
    for _ in STAGES:
        assert reached.acquire(timeout=60)
        go_on.release()
    for _ in range(20):  # the other pass of the third has stages too
        go_on.release()
    assert all(job.wait(60) and job.error is None for job in (etc, kernel, profile))

    assert [10, 10, 0] == [job.formed for job in (etc, kernel, profile)]
    found = formed(engine, asked(run, "kernel", query=QUERY))
    assert (10, QUERY) == (found.provenance["windows"], found.params["query"])


def test_what_was_formed_remains_after_a_cancel(engine, run, monkeypatch):
    """And is still there when the computation goes on from where it stopped."""
    reached, go_on = held_between_stages(monkeypatch)
    job = engine.submit(asked(run), "anna", looks_at=QUERY)
    for _ in range(2):
        assert reached.acquire(timeout=60)
        go_on.release()
    assert reached.acquire(timeout=60)
    assert engine.cancel(asked(run), "anna")
    time.sleep(0.1)
    go_on.release()
    assert job.wait(60)
    assert isinstance(job.error, Cancelled)
    assert 10 == formed(engine, asked(run)).provenance["windows"]

    again = engine.submit(asked(run), "anna", looks_at=QUERY)
    assert 10 == again.formed
    for _ in STAGES:
        go_on.release()
    assert again.wait(60)
    assert again.error is None
    assert 20 == engine.cached(asked(run)).provenance["windows"]


def test_stop_here(engine, run, monkeypatch):
    """The statistics of the next stage are kept: any question about that run needs no pass."""
    reached, go_on = held_between_stages(monkeypatch)
    job = engine.submit(asked(run), looks_at=QUERY)
    assert reached.acquire(timeout=60)
    assert engine.keep(asked(run))
    time.sleep(0.1)
    go_on.release()
    assert reached.acquire(timeout=60)
    while not job.kept:
        time.sleep(0.01)
    assert 8 == job.kept
    shorter = run.model_copy(update={"windows": 8})
    assert () == missing_statistics(engine.store, shorter)
    for _ in STAGES:
        go_on.release()
    assert job.wait(60)

    assert engine.ready(asked(shorter, "kernel-map", head="L1H2"))
    assert not engine.keep(asked(run))


def test_stop_here_on_a_full_disk(engine, run, monkeypatch):
    """Whoever wanted it is told why not, nothing of it is left, and the pass goes on for all."""
    reached, go_on = held_between_stages(monkeypatch)
    job = engine.submit(asked(run), "anna")
    assert job is engine.submit(asked(run), "ben")
    assert reached.acquire(timeout=60)
    assert engine.keep(asked(run))
    before = set(engine.store.keys())

    def full(store, size):
        raise NoSpace("No space is left.")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "make_room", full)
        go_on.release()
        assert reached.acquire(timeout=60)
        until(lambda: job.refused)
    assert ("No space is left.", 0) == (job.refused, job.kept)
    assert before == set(engine.store.keys())

    assert engine.keep(asked(run))  # now there is room
    go_on.release()
    assert reached.acquire(timeout=60)
    until(lambda: job.kept)
    assert ("", 10) == (job.refused, job.kept)
    for _ in STAGES:
        go_on.release()
    assert job.wait(60)
    assert 20 == engine.cached(asked(run)).provenance["windows"]
    plan = make_plan(asked(run))  # which nobody has looked at on the way
    assert not any(engine.store.has(plan.of_stage(n, QUERY).key) for n in STAGES)


def test_a_store_that_is_too_small_says_so_before_the_pass(engine, run, tmp_path, monkeypatch):
    """A text whose number of windows nobody knows before it is cut: no window of it is read."""
    notes = []
    monkeypatch.setattr(Job, "take", heard(notes, Job.take))
    small = Engine(Store(tmp_path / "small", limit_gb=0.0005), engine.execution)
    job = small.submit(asked(run))
    assert job.wait(60)
    small.close()
    small.store.close()

    assert "The store is too small for the sums" in str(job.error)
    assert "Cutting the text into windows" in notes
    assert "Reading windows of text" not in notes


def heard(notes, take):
    """Keep the notes of all jobs."""
    return lambda job, event: (notes.append(event.get("note")), take(job, event))


def test_a_target_ends_a_run(engine, run, monkeypatch):
    """The rule is part of the key; the header says how many windows were read."""
    seen = []

    def is_met(until, stage):
        seen.append((until, stage.windows))
        return stage.windows == 10

    monkeypatch.setattr(worker_module, "is_met", is_met)
    until = run.model_copy(update={"until": "kinds"})
    result = engine.result(asked(until), seconds=120)

    assert [("kinds", n) for n in STAGES] == seen
    assert (10, WINDOWS) == (result.provenance["windows"], result.provenance["windows_asked"])
    assert make_plan(asked(until)).key != make_plan(asked(run)).key
    alone = engine.result(asked(run.model_copy(update={"windows": 10})), seconds=120)
    np.testing.assert_array_equal(alone.values["etc"], result.values["etc"])
    assert engine.result(asked(run), seconds=120).provenance["windows"] == 20


def test_the_budget_of_pictures(monkeypatch):
    """The first is free; another is drawn while all stay within their share of the whole pass."""
    now = [0.0]
    monkeypatch.setattr(worker_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(worker_module, "SHARE", 0.1)

    class Stage:
        def __init__(self, windows):
            self.windows, self.of = windows, 100

    budget = Budget()
    now[0] = 4.0
    assert budget.allows(Stage(4))
    budget.spend(3.0)
    now[0] = 10.0  # the whole is expected to take 100 seconds, 10 of them for pictures
    assert budget.allows(Stage(10))
    budget.spend(4.0)
    assert not budget.allows(Stage(10))
    now[0] = 33.0  # 110 seconds
    assert budget.allows(Stage(30))
