"""Compositions: a parent job whose parts are jobs, sent together, shared, and cancelled alone."""

import numpy as np
import pytest

from poskernel_core.common.errors import Busy, ComputeFailed
from poskernel_core.common.result import Result
from poskernel_core.common.specs import CorpusSpec, Request
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.plan import make_plan
from poskernel_core.engine.provenance import to_entry
from tests.support.fake_worker import WAIT, until


@pytest.fixture
def whole(model_dirs):
    """A table of measures of a tiny model: a composition of several parts."""
    text = CorpusSpec(name="text", text="She sells sea shells.")
    run = describe_run(str(model_dirs["gpt2"]), corpus=text, windows=7)
    plan = make_plan(Request(analysis="head-measures", run=run, params={"query": 3}))
    assert len(plan.parts) > 2
    return plan


def put(engine, plan):
    result = Result("etc", {}, {"etc": np.array([2.0])}, {"etc": ("layer",)}, {"etc": "tokens"})
    engine.store.put(plan.key, *to_entry(result))


def keys(message):
    return [task["key"].rpartition("-")[0] for task in message["tasks"]]


def test_parts_go_out_together(fresh_engine, workers, whole):
    """One message, so that they can share a pass; what is stored already is not among them."""
    first, *others = whole.parts.values()
    put(fresh_engine, first)
    job = fresh_engine.submit(whole)

    assert keys(workers[0].hear()) == [each.key for each in others]
    assert [each.plan.key for each in job.parts] == [each.key for each in others]
    assert job is fresh_engine.submit(whole)
    assert job is fresh_engine.running(whole)


def test_progress_and_end(fresh_engine, workers, whole):
    """Parts that are done count; the whole is done when all of them are, and are stored."""
    job = fresh_engine.submit(whole)
    *parts, last = job.parts
    workers[0].say(parts[0].key, "running", done=1, total=9)
    until(lambda: job.state == "running")
    assert (0, len(whole.parts)) == (job.done, job.total)
    for part in parts:
        put(fresh_engine, part.plan)
        workers[0].say(part.key, "done")
    until(lambda: job.done == len(parts))
    assert not job.ended
    put(fresh_engine, last.plan)
    workers[0].say(last.key, "done")

    assert job.wait(WAIT)
    assert job.error is None


def test_a_part_that_was_dropped(fresh_engine, workers, whole):
    """All are done, one is not in the store any more: the setting is named."""
    job = fresh_engine.submit(whole)
    for part in job.parts:
        workers[0].say(part.key, "done")

    assert job.wait(WAIT)
    assert "POSKERNEL_CACHE_GB" in str(job.error)


def test_a_part_that_fails(fresh_engine, workers, whole):
    """The whole ends with its error, and the other parts are cancelled."""
    job = fresh_engine.submit(whole, "anna")
    workers[0].hear()
    failed, *others = job.parts
    workers[0].say(failed.key, "error", error="ComputeFailed", message="Broken.")

    assert job.wait(WAIT)
    assert isinstance(job.error, ComputeFailed)
    assert "Broken." == str(job.error)
    cancelled = {workers[0].hear()["cancel"] for _ in others}
    assert {each.key for each in others} == cancelled


def test_a_part_that_somebody_else_wants_goes_on(fresh_engine, workers, whole):
    """A part is shared like any job; cancelling the whole takes it from nobody."""
    single = next(iter(whole.parts.values()))
    own = fresh_engine.submit(single, "ben")
    assert [single.key] == keys(workers[0].hear())
    job = fresh_engine.submit(whole, "anna")
    assert own in job.parts
    assert {"join": own.key, "client": "anna"} == workers[0].hear()
    assert single.key not in keys(workers[0].hear())

    assert fresh_engine.cancel(whole, "anna")
    assert job.wait(WAIT)
    assert "cancelled" == job.state
    assert not own.cancelling
    workers[0].say(own.key, "running", done=1, total=7)
    until(lambda: own.done == 1)


def test_whoever_wants_a_part_as_well_keeps_it(fresh_engine, workers, whole):
    """Cancelling the whole does not withdraw what the same reader asked for by itself."""
    single = next(iter(whole.parts.values()))
    job = fresh_engine.submit(whole, "anna")
    own = fresh_engine.submit(single, "anna")
    assert own in job.parts

    assert fresh_engine.cancel(whole, "anna")

    assert not own.cancelling
    assert all(each.cancelling for each in job.parts if each is not own)


def test_two_readers_of_a_whole(fresh_engine, workers, whole):
    """One leaves, the other waits on; when both have left, the parts end."""
    job = fresh_engine.submit(whole, "anna")
    assert job is fresh_engine.submit(whole, "ben")

    assert not fresh_engine.cancel(whole, "anna")
    assert not any(each.cancelling for each in job.parts)
    assert fresh_engine.cancel(whole, "ben")
    assert all(each.cancelling for each in job.parts)


def test_a_whole_counts_once(fresh_engine, workers, whole, monkeypatch):
    """Its parts are not what its reader asked for."""
    monkeypatch.setenv("POSKERNEL_MAX_JOBS", "2")
    fresh_engine.submit(whole, "anna")
    other = whole.run.model_copy(update={"seed": 5})
    fresh_engine.submit(Request(analysis="etc", run=other), "anna")

    with pytest.raises(Busy, match="2 of yours wait or run"):
        fresh_engine.submit(Request(analysis="profile", run=other), "anna")


def test_a_crash_ends_the_whole(fresh_engine, workers, whole):
    """All parts end, and so does what they are parts of; asking again starts anew."""
    job = fresh_engine.submit(whole)
    workers[0].die()

    assert job.wait(WAIT)
    assert isinstance(job.error, ComputeFailed)
    again = fresh_engine.submit(whole)
    assert again is not job
    assert 2 == len(workers)
    assert len(again.parts) == len(whole.parts)
