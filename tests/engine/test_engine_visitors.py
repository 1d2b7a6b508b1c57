"""Several visitors of one engine: who may cancel, whose wishes count, how much each may ask for."""

import pytest

from poskernel_core.common.errors import Busy
from poskernel_core.engine import engine as engine_module
from tests.support.fake_worker import until


def test_cancelled_while_the_other_has_left(fresh_engine, workers, request_of):
    """Whoever has closed the page keeps nobody from cancelling."""
    there = {"anna", "ben"}
    fresh_engine._present = there.__contains__
    job = fresh_engine.submit(request_of(), "anna")
    fresh_engine.submit(request_of(), "ben")
    there.remove("ben")

    assert not fresh_engine.cancel(request_of(), "a stranger")
    assert fresh_engine.cancel(request_of(), "anna")
    assert [{"join": job.key, "client": "ben"}, {"cancel": job.key}] == [
        workers[0].hear() for _ in range(3)
    ][1:]


def test_what_nobody_waits_for_is_dropped(fresh_engine, workers, request_of, monkeypatch):
    """A job that waits its turn is cancelled once its visitors are gone; one that runs not yet."""
    monkeypatch.setattr(engine_module, "GRACE_SECONDS", 0.0)
    there = {"anna", "ben"}
    fresh_engine._present = there.__contains__
    waiting = fresh_engine.submit(request_of(4), "anna")
    both = fresh_engine.submit(request_of(5), "anna")
    fresh_engine.submit(request_of(5), "ben")
    running = fresh_engine.submit(request_of(6), "anna")
    own = fresh_engine.submit(request_of(7))
    there.remove("anna")
    fresh_engine._present = lambda visitor: visitor in there or not visitor
    workers[0].say(running.key, "running", done=1, total=7, note="Reading")
    until(lambda: running.state == "running")
    for _ in range(5):
        workers[0].hear()

    fresh_engine.drop_abandoned()
    assert [job.missed_since is None for job in (waiting, both, running, own)] == [
        False, True, False, True,
    ]  # fmt: skip
    fresh_engine.drop_abandoned()

    assert {"cancel": waiting.key} == workers[0].hear()


def test_what_runs_for_nobody_makes_room(fresh_engine, workers, request_of, monkeypatch):
    """It goes on while nobody else waits but those who have left too; then it is cancelled."""
    monkeypatch.setattr(engine_module, "ABANDONED_SECONDS", 0.0)
    there = {"anna", "ben", "carl"}
    fresh_engine._present = there.__contains__
    running = fresh_engine.submit(request_of(4), "anna")
    fresh_engine.submit(request_of(5), "ben")
    workers[0].say(running.key, "running", done=1, total=7, note="Reading")
    until(lambda: running.state == "running")
    there -= {"anna", "ben"}
    for _ in range(3):
        fresh_engine.drop_abandoned()
    assert running.missed_since is not None

    fresh_engine.submit(request_of(6), "carl")
    fresh_engine.drop_abandoned()

    heard = [workers[0].hear() for _ in range(4)]
    assert [4, 5, 6] == [each["tasks"][0]["plan"]["params"]["skip"] for each in heard[:3]]
    assert {"cancel": running.key} == heard[3]


def test_a_visitor_who_comes_back(fresh_engine, workers, request_of):
    """Whoever reloads the page in time finds the job still waiting."""
    there = {"anna"}
    fresh_engine._present = there.__contains__
    job = fresh_engine.submit(request_of(), "anna")
    there.clear()
    fresh_engine.drop_abandoned()
    assert job.missed_since is not None
    there.add("anna again")

    assert job is fresh_engine.submit(request_of(), "anna again")
    fresh_engine.drop_abandoned()

    assert job.missed_since is None


def test_whoever_comes_back_too_late_asks_anew(fresh_engine, workers, request_of, monkeypatch):
    """A job dropped because all had left is not shown as cancelled, nor joined while it ends."""
    monkeypatch.setattr(engine_module, "GRACE_SECONDS", 0.0)
    there = {"anna", "ben"}
    fresh_engine._present = there.__contains__
    dropped = fresh_engine.submit(request_of(4), "anna")
    cancelled = fresh_engine.submit(request_of(5), "ben")
    there.remove("anna")
    for _ in range(2):
        fresh_engine.drop_abandoned()
    fresh_engine.cancel(request_of(5), "ben")
    assert fresh_engine.running(request_of(4)) is dropped
    for job in (dropped, cancelled):
        workers[0].say(job.key, "cancelled")
        assert job.wait(5)

    assert fresh_engine.running(request_of(4)) is None
    assert fresh_engine.running(request_of(5)) is cancelled
    assert "queued" == fresh_engine.submit(request_of(4), "anna again").state


def test_whoever_asks_for_what_is_being_cancelled(fresh_engine, workers, request_of):
    """He has a job of his own, which the end of the cancelled one does not end."""
    job = fresh_engine.submit(request_of(), "anna")
    assert fresh_engine.cancel(request_of(), "anna")
    assert job is fresh_engine.submit(request_of(), "anna")  # who sees it end

    own = fresh_engine.submit(request_of(), "ben")
    assert own is not job
    heard = [workers[0].hear() for _ in range(3)]
    (first,), (second,) = heard[0]["tasks"], heard[2]["tasks"]
    assert [job.key, own.key] == [first["key"], second["key"]]
    assert first["plan"] == second["plan"]
    workers[0].say(job.key, "cancelled")
    assert job.wait(5)
    assert not own.ended
    assert own is fresh_engine.submit(request_of(), "ben")
    workers[0].say(own.key, "running", done=3, total=7)
    until(lambda: own.done == 3)


def test_one_visitor_may_not_ask_for_everything(fresh_engine, workers, request_of, monkeypatch):
    """Above a number of open jobs he is told so; others, and programs of one's own, are not."""
    monkeypatch.setenv("POSKERNEL_MAX_JOBS", "3")
    for skip in range(3):
        fresh_engine.submit(request_of(skip), "anna")

    with pytest.raises(Busy, match=r"up to 3 computations of one reader .* 3 of yours wait or run"):
        fresh_engine.submit(request_of(7), "anna")
    fresh_engine.submit(request_of(2), "anna")
    fresh_engine.submit(request_of(7), "ben")
    assert fresh_engine.submit(request_of(7), "anna")  # it is under way for ben in any case
    for skip in range(8, 15):
        fresh_engine.submit(request_of(skip))


def test_all_visitors_together_have_a_bound(fresh_engine, workers, request_of, monkeypatch):
    """It counts what any of them wait for; what a program of one's own asks for is apart."""
    monkeypatch.setenv("POSKERNEL_MAX_JOBS_TOTAL", "2")
    fresh_engine.submit(request_of(0))
    fresh_engine.submit(request_of(1), "anna")
    fresh_engine.submit(request_of(2), "ben")

    with pytest.raises(Busy, match="up to 2 computations at a time, and 2 of its readers'"):
        fresh_engine.submit(request_of(3), "carl")
    fresh_engine.submit(request_of(4))


@pytest.fixture
def tabs(fresh_engine):
    """Who has opened a tab of the browser: ``anna 3`` is a tab of Anna's."""
    fresh_engine._person = lambda visitor: visitor.partition(" ")[0]
    return fresh_engine


def test_many_tabs_of_one_person_have_one_turn_and_one_bound(
    tabs, workers, request_of, monkeypatch
):
    """The worker hears of the person; other people's tabs count for themselves."""
    monkeypatch.setenv("POSKERNEL_MAX_JOBS", "3")
    for number in range(3):
        tabs.submit(request_of(number), f"anna {number}")

    assert ["anna"] * 3 == [workers[0].hear()["tasks"][0]["client"] for _ in range(3)]
    with pytest.raises(Busy):
        tabs.submit(request_of(7), "anna 99")
    tabs.submit(request_of(7), "ben 1")
    assert "ben" == workers[0].hear()["tasks"][0]["client"]


def test_one_tab_does_not_cancel_what_another_waits_for(tabs, workers, request_of):
    """Also where both are of one person, or of two people who share an address."""
    job = tabs.submit(request_of(), "school 1")
    assert job is tabs.submit(request_of(), "school 2")
    tabs.submit(request_of(), "anna 1")
    workers[0].hear()
    assert {"join": job.key, "client": "anna"} == workers[0].hear()

    assert not tabs.cancel(request_of(), "school 1")
    assert not tabs.cancel(request_of(), "school 1")
    assert not tabs.cancel(request_of(), "school 3")
    assert not tabs.cancel(request_of(), "")
    assert not tabs.cancel(request_of(), "school 2")
    assert {"leave": job.key, "client": "school"} == workers[0].hear()  # the last of its tabs
    assert tabs.cancel(request_of(), "anna 1")
    assert {"cancel": job.key} == workers[0].hear()


def test_a_person_is_there_while_one_tab_is(tabs, workers, request_of, monkeypatch):
    """What waits is dropped when the last tab that wants it has gone, not when the first has."""
    monkeypatch.setattr(engine_module, "GRACE_SECONDS", 0.0)
    there = {"anna 1", "anna 2", "anna 3"}
    tabs._present = there.__contains__
    job = tabs.submit(request_of(), "anna 1")
    tabs.submit(request_of(), "anna 2")
    workers[0].hear()

    there.remove("anna 1")
    tabs.drop_abandoned()
    assert job.missed_since is None
    there.remove("anna 2")  # the third tab wants something else
    tabs.drop_abandoned()
    tabs.drop_abandoned()

    assert {"cancel": job.key} == workers[0].hear()
