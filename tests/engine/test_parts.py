"""Compositions: a parent job whose parts are jobs, sent together, shared, and cancelled alone."""

import pytest

from poskernel_core.common.errors import Busy, ComputeFailed
from poskernel_core.common.specs import Request
from poskernel_core.engine.plan import make_plan
from tests.support import WAIT, until
from tests.support.fake_worker import put


@pytest.fixture
def whole(desk):
    """A table of measures of a tiny model: a composition of several parts."""
    asked = Request(analysis="head-measures", run=desk.plan().run, params={"query": 3})
    plan = make_plan(asked)
    assert len(plan.parts) > 2
    return plan


def keys(message):
    return [task["key"].rpartition("-")[0] for task in message["tasks"]]


def test_parts_go_out_together(desk, whole):
    """In one message, without what is stored; those that are done count; all done, all is."""
    first, *others = whole.parts.values()
    put(desk.engine, first)
    job = desk.engine.submit(whole)
    assert [keys(each) for each in desk.hear()] == [[each.key for each in others]]
    assert [each.plan.key for each in job.parts] == [each.key for each in others]
    assert job is desk.engine.submit(whole) is desk.engine.running(whole)

    *parts, last = job.parts
    desk.begin(parts[0])
    until(lambda: job.state == "running")
    assert (1, len(whole.parts)) == (job.done, job.total)
    for part in parts:
        put(desk.engine, part.plan)
        desk.end(part)
    assert (False, len(whole.parts) - 1) == (job.ended, job.done)
    put(desk.engine, last.plan)
    desk.end(last)
    assert job.wait(WAIT)
    assert job.error is None


def test_a_whole_that_fails(desk, whole):
    """All parts are done, one is not in the store any more: the setting is named.

    With the error of a part, the others are cancelled; a crash ends all; then it starts anew.
    """
    jobs = [desk.engine.submit(whole)]
    for part in jobs[0].parts:
        desk.end(part)
    assert jobs[0].wait(WAIT)
    assert "POSKERNEL_CACHE_GB" in str(jobs[0].error)

    jobs.append(desk.engine.submit(whole, "anna"))
    desk.hear(2)
    failed, *others = jobs[1].parts
    desk.end(failed, "error")
    assert jobs[1].wait(WAIT)
    assert (ComputeFailed, "Broken.") == (type(jobs[1].error), str(jobs[1].error))
    assert {each.key for each in others} == {each["cancel"] for each in desk.hear(len(others))}

    jobs.append(desk.engine.submit(whole))
    desk.workers[0].die()
    assert jobs[2].wait(WAIT)
    assert isinstance(jobs[2].error, ComputeFailed)
    jobs.append(desk.engine.submit(whole))
    assert 4 == len({id(job) for job in jobs})
    assert (2, len(whole.parts)) == (len(desk.workers), len(jobs[3].parts))


def test_a_part_that_somebody_else_wants_goes_on(desk, whole):
    """A part is shared like any job; cancelling the whole takes it from nobody."""
    single = next(iter(whole.parts.values()))
    own = desk.engine.submit(single, "ben")
    job = desk.engine.submit(whole, "anna")
    assert own in job.parts
    alone, joined, others = desk.hear(3)
    assert [single.key] == keys(alone)
    assert {"join": own.key, "client": "anna"} == joined
    assert single.key not in keys(others)

    assert desk.engine.cancel(whole, "anna")
    assert job.wait(WAIT)
    assert "cancelled" == job.state
    assert not own.cancelling
    desk.begin(own)


def test_whoever_wants_a_part_as_well_keeps_it(desk, whole):
    """Cancelling the whole does not withdraw what the same reader asked for by itself."""
    job = desk.engine.submit(whole, "anna")
    own = desk.engine.submit(next(iter(whole.parts.values())), "anna")
    assert own in job.parts
    assert desk.engine.cancel(whole, "anna")
    assert [own] == [each for each in job.parts if not each.cancelling]


def test_two_readers_of_a_whole(desk, whole):
    """One leaves, the other waits on; when both have left, the parts end."""
    job = desk.engine.submit(whole, "anna")
    assert job is desk.engine.submit(whole, "ben")

    assert not desk.engine.cancel(whole, "anna")
    assert not any(each.cancelling for each in job.parts)
    assert desk.engine.cancel(whole, "ben")
    assert all(each.cancelling for each in job.parts)


def test_a_whole_counts_once(desk, whole, monkeypatch):
    """Its parts are not what its reader asked for."""
    monkeypatch.setenv("POSKERNEL_MAX_JOBS", "2")
    desk.engine.submit(whole, "anna")
    desk.ask(5, "anna")
    with pytest.raises(Busy, match="2 of yours wait or run"):
        desk.ask(6, "anna")
