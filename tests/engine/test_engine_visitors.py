"""Several visitors of one engine: who may cancel, whose wishes count, how much each may ask for."""

import pytest

from poskernel_core.common.errors import Busy
from poskernel_core.engine import engine as engine_module


@pytest.fixture
def no_grace(monkeypatch):
    """What waits for nobody is dropped at the second look."""
    monkeypatch.setattr(engine_module, "GRACE_SECONDS", 0.0)


def test_cancelled_while_the_other_has_left(desk):
    """Whoever has closed the page keeps nobody from cancelling."""
    desk.there = {"anna", "ben"}
    job = desk.ask(4, "anna")
    desk.ask(4, "ben")
    desk.there.remove("ben")

    assert not desk.cancel(4, "a stranger")
    assert desk.cancel(4, "anna")
    assert [{"join": job.key, "client": "ben"}, {"cancel": job.key}] == desk.hear(3)[1:]


def test_what_nobody_waits_for_is_dropped(desk, no_grace):
    """A job that waits its turn is cancelled once its visitors are gone; one that runs not yet."""
    desk.there = {"anna", "ben"}
    waiting, both = desk.ask(4, "anna"), desk.ask(5, "anna")
    desk.ask(5, "ben")
    running, own = desk.ask(6, "anna"), desk.ask(7)
    desk.there.remove("anna")
    desk.begin(running)
    desk.hear(5)

    desk.engine.drop_abandoned()
    missed = [job.missed_since is not None for job in (waiting, both, running, own)]
    assert [True, False, True, False] == missed
    desk.engine.drop_abandoned()
    assert [{"cancel": waiting.key}] == desk.hear()


def test_what_runs_for_nobody_makes_room(desk, monkeypatch):
    """It goes on while nobody else waits but those who have left too; then it is cancelled."""
    monkeypatch.setattr(engine_module, "ABANDONED_SECONDS", 0.0)
    desk.there = {"anna", "ben", "carl"}
    running = desk.ask(4, "anna")
    desk.ask(5, "ben")
    desk.begin(running)
    desk.there -= {"anna", "ben"}
    for _ in range(3):
        desk.engine.drop_abandoned()
    assert running.missed_since is not None
    desk.ask(6, "carl")
    desk.engine.drop_abandoned()

    *asked, last = desk.hear(4)
    assert [4, 5, 6] == [each["tasks"][0]["plan"]["params"]["skip"] for each in asked]
    assert {"cancel": running.key} == last


def test_a_visitor_who_comes_back(desk, no_grace):
    """In time, the job is still waiting; too late, it is asked for anew, and not as cancelled."""
    desk.there = {"anna", "ben"}
    job, cancelled = desk.ask(4, "anna"), desk.ask(5, "ben")
    desk.there = {"ben"}
    desk.engine.drop_abandoned()
    assert job.missed_since is not None
    desk.there.add("anna again")
    assert job is desk.ask(4, "anna again")
    desk.engine.drop_abandoned()
    assert job.missed_since is None

    desk.there = {"ben"}
    for _ in range(2):
        desk.engine.drop_abandoned()
    desk.cancel(5, "ben")
    assert desk.running(4) is job
    for each in (job, cancelled):
        desk.end(each, "cancelled")
    assert (None, cancelled) == (desk.running(4), desk.running(5))
    assert "queued" == desk.ask(4, "anna again").state


def test_whoever_asks_for_what_is_being_cancelled(desk):
    """He has a job of his own, which the end of the cancelled one does not end."""
    job = desk.ask(4, "anna")
    assert desk.cancel(4, "anna")
    assert job is desk.ask(4, "anna")  # who sees it end
    own = desk.ask(4, "ben")
    assert own is not job

    (first,), _, (second,) = (each.get("tasks", ()) for each in desk.hear(3))
    assert [job.key, own.key] == [first["key"], second["key"]]
    assert first["plan"] == second["plan"]
    desk.end(job, "cancelled")
    assert not own.ended
    assert own is desk.ask(4, "ben")
    desk.begin(own, done=3)


def test_how_much_one_may_ask_for(desk, monkeypatch):
    """One visitor, whatever tabs are open, and all together; programs of one's own are apart."""
    desk.engine._person = lambda visitor: visitor.partition(" ")[0]
    monkeypatch.setenv("POSKERNEL_MAX_JOBS", "3")
    for skip in range(3):
        desk.ask(skip, f"anna {skip}")
    assert ["anna"] * 3 == [each["tasks"][0]["client"] for each in desk.hear(3)]
    with pytest.raises(Busy, match=r"up to 3 computations of one reader .* 3 of yours wait or run"):
        desk.ask(7, "anna 99")
    desk.ask(2, "anna 5")
    desk.ask(7, "ben 1")
    assert "ben" == desk.hear()[0]["tasks"][0]["client"]
    assert desk.ask(7, "anna 99")  # it is under way for ben in any case

    monkeypatch.setenv("POSKERNEL_MAX_JOBS_TOTAL", "4")
    for skip in range(8, 15):
        desk.ask(skip)
    with pytest.raises(Busy, match="up to 4 computations at a time, and 4 of its readers'"):
        desk.ask(3, "carl")


def test_one_tab_does_not_cancel_what_another_waits_for(desk):
    """Also where both are of one person, or of two people who share an address."""
    desk.engine._person = lambda visitor: visitor.partition(" ")[0]
    job = desk.ask(4, "school 1")
    assert job is desk.ask(4, "school 2")
    desk.ask(4, "anna 1")
    assert {"join": job.key, "client": "anna"} == desk.hear(2)[1]

    for tab in ("school 1", "school 1", "school 3", "", "school 2"):
        assert not desk.cancel(4, tab)
    assert [{"leave": job.key, "client": "school"}] == desk.hear()  # the last of its tabs
    assert desk.cancel(4, "anna 1")
    assert [{"cancel": job.key}] == desk.hear()


def test_a_person_is_there_while_one_tab_is(desk, no_grace):
    """What waits is dropped when the last tab that wants it has gone, not when the first has."""
    desk.engine._person = lambda visitor: visitor.partition(" ")[0]
    desk.there = {"anna 1", "anna 2", "anna 3"}
    job = desk.ask(4, "anna 1")
    desk.ask(4, "anna 2")
    desk.hear()

    desk.there.remove("anna 1")
    desk.engine.drop_abandoned()
    assert job.missed_since is None
    desk.there.remove("anna 2")  # the third tab wants something else
    for _ in range(2):
        desk.engine.drop_abandoned()
    assert [{"cancel": job.key}] == desk.hear()
