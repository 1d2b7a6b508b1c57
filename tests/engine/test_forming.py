"""Results while they form: those of the first windows, stored as the results of shorter runs."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from poskernel_core.common.errors import Cancelled, NoSpace
from poskernel_core.common.specs import Execution, Request
from poskernel_core.engine import worker as worker_module
from poskernel_core.engine.engine import Engine
from poskernel_core.engine.job import Job
from poskernel_core.engine.plan import make_plan
from poskernel_core.engine.worker import Budget
from poskernel_core.storage.statistics import missing_statistics
from poskernel_core.storage.store import Store
from tests.support import builders, until
from tests.support.stages import run_over

WINDOWS, CONTEXT, QUERY = 23, 19, 17
STAGES = [4, 8, 10]


@pytest.fixture
def run(model_dirs, tmp_path):
    """Ten groups of two windows of a tiny GPT-2, in a file of more windows."""
    ids = builders.random_ids(97, CONTEXT, seed=3).numpy()
    return run_over(tmp_path, model_dirs["gpt2"], ids, WINDOWS)


@pytest.fixture
def engine(tmp_path, near_worker, monkeypatch, unchecked):
    """An engine whose pictures may cost what they like."""
    monkeypatch.setattr(worker_module, "SHARE", 1e9)
    made = Engine(Store(tmp_path / "store"), Execution(device="cpu", batch=4))
    yield made
    made.close()
    made.store.close()


def asked(run, analysis="etc", **params):
    return make_plan(Request(analysis=analysis, run=run, params=params))


def there(engine, plan, query=QUERY):
    """After how many windows a result has formed at a position."""
    return [n for n in STAGES if engine.store.has(plan.of_stage(n, query).key)]


class Held:
    """The worker waits after each stage until the test lets it go on."""

    def __init__(self, monkeypatch, engine):
        self._go_on, self._reached, self._engine = *map(threading.Semaphore, (0, 0)), engine
        on_stage = worker_module.Worker._on_stage

        def held(worker, task, budget, stage):
            ends = on_stage(worker, task, budget, stage)
            self._reached.release()
            assert self._go_on.acquire(timeout=60)
            return ends

        monkeypatch.setattr(worker_module.Worker, "_on_stage", held)

    def reach(self, stages=1):
        """Wait for a stage, and let those before it go on."""
        assert self._reached.acquire(timeout=60)
        for _ in range(stages - 1):
            self._go_on.release()
            assert self._reached.acquire(timeout=60)

    def go_on(self, *jobs):
        """Hold nothing any longer, and wait for the end of the jobs."""
        self._go_on.release(99)
        assert all(job.wait(60) for job in jobs)

    def told(self, job, condition):
        """Wait until the worker has heard what it was told of a job's task."""
        tasks = self._engine._child._process._worker._tasks
        until(lambda: job.key in tasks and condition(tasks[job.key]))


@pytest.fixture
def held(monkeypatch, engine):
    return Held(monkeypatch, engine)


def test_the_last_is_the_whole_result(engine, run, monkeypatch, capsys):
    """Whoever watches gets it at the end, at all positions, also if pictures on the way fail.

    What failed stands in the log, whatever it was.
    """
    form = worker_module.execute.form
    errors = {4: KeyError("no picture"), 8: NoSpace("No space is left.")}

    def failing(store, plan, stage, query):
        if stage.windows in errors:
            raise errors[stage.windows]
        return form(store, plan, stage, query)

    monkeypatch.setattr(worker_module.execute, "form", failing)
    found = list(engine.watch(asked(run), QUERY))
    windows = [each.provenance["windows"] for each in found]
    assert [10, 20] == windows
    logged = capsys.readouterr().err
    assert all(words in logged for words in ("no picture", "No space is left."))
    assert len(run.positions) == found[-1].values["etc"].shape[2]
    assert 1 == len(list(engine.watch(asked(run), QUERY)))
    # a part of its texts is no answer to a question that says how many there are
    some = run.model_copy(update={"windows": 20})
    helix = asked(some, "helix", tokens=23, prompts="repeated")
    assert 1 == len(list(engine.watch(helix, QUERY)))


@pytest.mark.parametrize("end", ["closed", "exhausted", "told in vain"])
def test_who_has_watched_listens_no_longer(engine, run, held, end):
    """To a job that others wait for too."""

    def tell(job):
        if end == "told in vain":
            raise BrokenPipeError

    job = engine.submit(asked(run), "anna", looks_at=QUERY)
    held.reach()
    listeners = [*job.on_event]
    watched = engine.watch(asked(run), QUERY, tell)
    if end == "told in vain":
        with pytest.raises(BrokenPipeError):
            next(watched)
    else:
        assert 4 == next(watched).provenance["windows"]
    held.go_on(job)
    assert end != "exhausted" or 20 == [*watched][-1].provenance["windows"]
    watched.close()
    assert listeners == job.on_event


def test_a_stage_is_seen_that_forms_as_one_begins_to_watch(engine, run, held, monkeypatch):
    """The next that is told of the job is the next stage."""
    job = engine.submit(asked(run), "anna", looks_at=QUERY)
    held.reach(2)
    shared = Job("shared", job.plan)

    class Late(list):
        def append(self, heard):
            shared.take({"formed": 4})
            super().append(heard)

    shared.on_event = Late()
    monkeypatch.setattr(engine, "submit", lambda *asked, **more: shared)
    events = iter([{"formed": 8}, {"state": "done"}])
    watched = engine.watch(asked(run), QUERY, lambda job: job.take(next(events, {})))
    assert [4, 8] == [next(watched).provenance["windows"] for _ in range(2)]
    held.go_on(job)
    assert 20 == next(watched).provenance["windows"]


def test_whoever_looks_elsewhere_is_served_at_the_next_stage(engine, run, held):
    """The position that was looked at before forms as well."""
    job = engine.submit(asked(run), looks_at=QUERY)
    held.reach()
    assert job is engine.submit(asked(run), looks_at=11)
    held.told(job, lambda task: task.looked_at == (11, QUERY))
    held.go_on(job)
    assert (STAGES, STAGES[1:]) == tuple(there(engine, job.plan, query) for query in (QUERY, 11))


def test_two_questions_form_from_one_pass(engine, run, held):
    """The second waits for the pass of the first, and is told as well."""
    kernel = asked(run, "kernel", query=QUERY)
    two_passes = asked(run, "previous-token")
    jobs = [engine.submit(each, looks_at=QUERY) for each in (asked(run), kernel, two_passes)]
    held.reach()
    held.told(jobs[2], lambda task: task.looked_at)
    held.go_on(*jobs)
    assert [None] * 3 == [job.error for job in jobs]
    assert [10, 10, 0] == [job.formed for job in jobs]
    found = engine.cached(kernel.of_stage(10, QUERY))
    assert (10, QUERY) == (found.provenance["windows"], found.params["query"])


def test_what_was_formed_remains_after_a_cancel(engine, run, held):
    """And is still there when the computation goes on from where it stopped."""
    job = engine.submit(asked(run), "anna", looks_at=QUERY)
    held.reach(3)
    assert engine.cancel(asked(run), "anna")
    held.told(job, lambda task: task.cancelled.is_set())
    held.go_on(job)
    assert isinstance(job.error, Cancelled)
    assert STAGES == there(engine, job.plan)

    again = engine.submit(asked(run), "anna", looks_at=QUERY)
    assert 10 == again.formed
    assert again.wait(60)
    assert again.error is None
    assert 20 == engine.cached(asked(run)).provenance["windows"]


def test_stop_here(engine, run, held, monkeypatch):
    """The statistics of the next stage are kept: any question about that run needs no pass.

    On a full disk whoever wanted it is told why not, nothing of it is left, and all goes on.
    """
    job = engine.submit(asked(run), "anna")
    assert job is engine.submit(asked(run), "ben")
    held.reach()
    before = set(engine.store.keys())
    with monkeypatch.context() as patch:

        def full(store, size):
            raise NoSpace("No space is left.")

        patch.setattr(Store, "make_room", full)
        assert engine.keep(asked(run))
        held.told(job, lambda task: task.keeping)
        held._go_on.release()
        until(lambda: job.refused, 60)
        held.reach()
    assert ("No space is left.", 0) == (job.refused, job.kept)
    assert before == set(engine.store.keys())

    assert engine.keep(asked(run))  # now there is room
    held.told(job, lambda task: task.keeping)
    held.go_on(job)
    assert ("", 10) == (job.refused, job.kept)
    shorter = run.model_copy(update={"windows": 10})
    assert () == missing_statistics(engine.store, shorter)
    assert engine.ready(asked(shorter, "kernel-map", head="L1H2"))
    assert not engine.keep(asked(run))
    assert 20 == engine.cached(asked(run)).provenance["windows"]
    assert [] == there(engine, job.plan)  # which nobody has looked at on the way


def test_a_target_ends_a_run(engine, run, monkeypatch):
    """The rule is part of the key; the header says how many windows were read."""
    seen = []

    def is_met(until, stage):
        seen.append((until, stage.windows))
        return stage.windows == 10

    monkeypatch.setattr(worker_module, "is_met", is_met)
    ended = asked(run.model_copy(update={"until": "kinds"}))
    result = engine.result(ended, seconds=120)

    assert [("kinds", n) for n in STAGES] == seen
    assert (10, WINDOWS) == (result.provenance["windows"], result.provenance["windows_asked"])
    assert ended.key != asked(run).key
    alone = engine.result(asked(run.model_copy(update={"windows": 10})), seconds=120)
    np.testing.assert_array_equal(alone.values["etc"], result.values["etc"])
    assert engine.result(asked(run), seconds=120).provenance["windows"] == 20


def test_the_budget_of_pictures(monkeypatch):
    """The first is free; another is drawn while all stay within their share of the whole pass."""
    now = SimpleNamespace(monotonic=lambda: now.at, at=0.0)
    monkeypatch.setattr(worker_module, "time", now)
    monkeypatch.setattr(worker_module, "SHARE", 0.1)
    budget, told = Budget(), []
    for now.at, windows, spent in ((4.0, 4, 3.0), (10.0, 10, 4.0), (10.0, 10, 0), (33.0, 30, 0)):
        told.append(budget.allows(SimpleNamespace(windows=windows, of=100)))
        if spent:
            budget.spend(spent)
    # the whole is expected to take 100 seconds, 10 of them for pictures; then 110 seconds
    assert [True, True, False, True] == told
