"""What an engine counts: looks for results, jobs by how they end, starts of its worker."""

import threading
import time

import numpy as np
import pytest

from poskernel_core.common.result import Result
from poskernel_core.common.specs import CorpusSpec, Request
from poskernel_core.engine.counts import ENDINGS, KINDS, STATES, Counts, kind_of, open_by_kind
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.job import Job
from poskernel_core.engine.plan import make_plan
from poskernel_core.engine.provenance import to_entry

WAIT = 10.0


@pytest.fixture(scope="module")
def asked(model_dirs):
    """Requests: analyses with some skip, or an experiment."""
    run = describe_run(
        str(model_dirs["gpt2"]), corpus=CorpusSpec(name="text", text="She sells."), windows=7
    )

    def request(skip=4, analysis="etc"):
        params = {"skip": skip} if analysis == "etc" else {"period": 5, "samples": 7}
        return make_plan(Request(analysis=analysis, run=run, params=params))

    return request


def tallied(fresh_engine):
    """How many jobs have ended, by kind and how, where there are any."""
    return {how: tally.jobs for how, tally in fresh_engine.counts.tallies.items() if tally.jobs}


def test_nothing_has_happened(fresh_engine):
    """All that can be counted is there from the beginning, as 0; no worker is started."""
    assert {(kind, how) for kind in KINDS for how in ENDINGS} == set(fresh_engine.counts.tallies)
    assert {} == tallied(fresh_engine)
    assert {(kind, state): 0 for kind in KINDS for state in STATES} == dict(
        open_by_kind(fresh_engine.open_jobs())
    )
    assert ("none", 0) == (fresh_engine.worker, fresh_engine.counts.worker_starts)


def test_looks_for_results(fresh_engine, asked):
    """A result that is there is a hit, one that is not a miss."""
    fresh_engine.cached(asked())
    result = Result("etc", {}, {"etc": np.array([2.0])}, {"etc": ("layer",)}, {"etc": "tokens"})
    fresh_engine.store.put(asked().key, *to_entry(result))
    for _ in range(3):
        fresh_engine.cached(asked())

    assert (3, 1) == (fresh_engine.counts.hits, fresh_engine.counts.misses)


def test_jobs_by_how_they_end(fresh_engine, workers, asked):
    """Each is counted once, as what it is, with the seconds since it was asked for."""
    jobs = [fresh_engine.submit(asked(skip)) for skip in (1, 2, 3)]
    jobs.append(fresh_engine.submit(asked(analysis="induction-scores")))
    (worker,) = workers
    worker.say(jobs[3].key, "running", done=1, total=2)
    while jobs[3].state != "running":
        time.sleep(0.01)
    waiting = open_by_kind(fresh_engine.open_jobs())
    jobs[0].began -= 1000
    worker.say(jobs[0].key, "done")
    worker.say(jobs[0].key, "done")
    worker.say(jobs[1].key, "error", error="ComputeFailed", message="no")
    worker.say(jobs[2].key, "cancelled")
    worker.say(jobs[3].key, "done")
    assert all(job.wait(WAIT) for job in jobs)

    assert (3, 1) == (waiting["analysis", "queued"], waiting["experiment", "running"])
    assert 4 == waiting.total()
    assert 0 == open_by_kind(fresh_engine.open_jobs()).total()
    assert {
        ("analysis", "done"): 1,
        ("analysis", "error"): 1,
        ("analysis", "cancelled"): 1,
        ("experiment", "done"): 1,
    } == tallied(fresh_engine)
    assert 1000 <= fresh_engine.counts.tallies["analysis", "done"].seconds < 1000 + 60
    assert 0 <= fresh_engine.counts.tallies["experiment", "done"].seconds < 60


def test_a_worker_that_is_killed(fresh_engine, workers, asked):
    """Its jobs end with an error, it is told of, and the next one is counted."""
    job = fresh_engine.submit(asked(1))
    assert ("alive", 1) == (fresh_engine.worker, fresh_engine.counts.worker_starts)
    workers[0].die()
    assert job.wait(WAIT)

    assert "ended" == fresh_engine.worker
    assert {("analysis", "error"): 1} == tallied(fresh_engine)
    fresh_engine.submit(asked(1))
    assert ("alive", 2) == (fresh_engine.worker, fresh_engine.counts.worker_starts)


def test_counted_from_many_threads(asked):
    """No count is lost."""
    counts, plan = Counts(), asked()

    def work():
        for _ in range(500):
            counts.looked(True)
            counts.looked(False)
            Job("a", plan, on_end=counts.ended).take({"state": "done"})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (2000, 2000) == (counts.hits, counts.misses)
    assert 2000 == counts.tallies["analysis", "done"].jobs


def test_kinds(asked):
    """By what answers it."""
    assert "analysis" == kind_of(Job("a", asked()))
    assert "experiment" == kind_of(Job("a", asked(analysis="induction-scores")))
    depth = Request(analysis="depth", run=asked().run, params={})
    assert "composition" == kind_of(Job("a", make_plan(depth)))
