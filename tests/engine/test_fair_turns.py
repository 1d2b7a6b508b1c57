"""Turns from end to end: engine, pipe and the real worker, with a tiny model."""

import threading

import pytest

from poskernel_core.common.specs import CorpusSpec, Request
from poskernel_core.engine import worker as worker_module
from poskernel_core.engine.engine import Engine, describe_run
from poskernel_core.engine.queue import Queue
from poskernel_core.storage.store import Store

WAIT = 60


@pytest.fixture
def held(monkeypatch):
    """The first pass is held until it is let go; which came up, and which wait, by their seeds."""
    came, queued, begun, go_on = [], [], threading.Event(), threading.Event()
    gather, put = worker_module.execute.gather_missing, Queue.put

    def gather_missing(shared, plan, *rest):
        came.append(plan.run.seed)
        begun.set()
        assert go_on.wait(WAIT)
        return gather(shared, plan, *rest)

    def to_queue(self, *tasks):
        put(self, *tasks)
        queued.extend(task.plan.run.seed for task in tasks if task.plan.missing)

    monkeypatch.setattr(worker_module.execute, "gather_missing", gather_missing)
    monkeypatch.setattr(Queue, "put", to_queue)
    yield came, queued, begun, go_on
    go_on.set()


def test_many_requests_of_one_in_many_tabs_delay_another_by_one(
    tmp_path, near_worker, model_dirs, held, unchecked
):
    """Forty requests from thirty tabs of one person: another person's single one is next."""
    came, queued, begun, go_on = held
    engine = Engine(Store(tmp_path), person=lambda visitor: visitor.partition(" ")[0])
    base = describe_run(
        str(model_dirs["gpt2"]), corpus=CorpusSpec(name="text", text="She sells sea shells."),
        windows=1,
    )  # fmt: skip

    def asked(seed):
        return Request(analysis="etc", run=base.model_copy(update={"seed": seed}))

    jobs = [engine.submit(asked(seed), f"anna {seed % 30}") for seed in range(40)]
    assert begun.wait(WAIT)
    single = engine.submit(asked(777), "ben 1")
    for _ in range(20 * WAIT):
        if 777 in queued:
            break
        threading.Event().wait(0.05)
    go_on.set()

    assert single.wait(WAIT)
    assert single.error is None
    assert [0, 777] == came[:2]
    assert not all(job.ended for job in jobs)
    for job in jobs:
        assert job.wait(WAIT)
        assert job.error is None
    assert {*range(40), 777} == set(came)
    engine.close()
    engine.store.close()


def test_what_was_dropped_before_its_part_was_computed(
    tmp_path, near_worker, model_dirs, monkeypatch, unchecked
):
    """Another process' results drive statistics out: they are gathered again, or it is said."""
    dropped = []
    gather = worker_module.execute.gather_missing

    def gather_missing(shared, asked, *rest):
        gather(shared, asked, *rest)
        if len(dropped) < times:
            dropped.append(asked)
            for key in list(shared.store.keys()):
                shared.store.drop(key)

    monkeypatch.setattr(worker_module.execute, "gather_missing", gather_missing)
    run = describe_run(
        str(model_dirs["gpt2"]), corpus=CorpusSpec(name="text", text="She sells sea shells. " * 40),
        windows=1,
    )  # fmt: skip
    engine = Engine(Store(tmp_path))
    request = Request(analysis="head-measures", run=run, params={"query": run.context - 1})

    times = 2
    assert engine.result(request, WAIT) is not None
    assert 2 == len(dropped)

    times, again = 99, run.model_copy(update={"seed": 7})
    job = engine.submit(request.model_copy(update={"run": again}))
    assert job.wait(WAIT)
    assert "dropped as soon as they were written" in str(job.error)
    engine.close()
    engine.store.close()
