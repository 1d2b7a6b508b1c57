"""The engine's side of its pipe to the worker, with a worker that does what the test says.

Also several visitors of one engine, and compositions: a parent job whose parts are jobs.
"""

import sys
import threading
from types import SimpleNamespace

import pytest

from poskernel_core.analyses.replicates import computed
from poskernel_core.common.errors import BadRequest, Busy, Cancelled, ComputeFailed, TooLittleText
from poskernel_core.common.result import Result
from poskernel_core.common.specs import Request
from poskernel_core.engine import engine as engine_module
from poskernel_core.engine import job as job_module
from poskernel_core.engine.counts import ENDINGS, KINDS, STATES, Counts, kind_of, open_by_kind
from poskernel_core.engine.job import Job
from poskernel_core.engine.plan import make_plan, plan_of
from poskernel_core.engine.process import Child
from poskernel_core.storage.store import Store
from tests.support import WAIT, until
from tests.support.fake_worker import put


def at_once(*acts):
    """Do things in threads of their own, and wait for their ends."""
    threads = [threading.Thread(target=act, daemon=True) for act in acts]
    for each in threads:
        each.start()
    for each in threads:
        each.join(2 * WAIT)
        assert not each.is_alive()


def seeded(plan, seed):
    return plan_of(plan.question, plan.run.model_copy(update={"seed": seed}), plan.params)


def test_equal_requests_share_a_job(desk):
    """Two threads that ask for one thing get one job, and one message goes to the worker."""
    jobs, gate = [], threading.Barrier(2)
    at_once(*[lambda: (gate.wait(), jobs.append(desk.ask()))] * 2)
    other = desk.ask(5)

    assert jobs[0] is jobs[1] is not other
    assert 1 == len(desk.workers)
    assert [4, 5] == [each["tasks"][0]["plan"]["params"]["skip"] for each in desk.hear(2)]
    assert desk.running() is jobs[0]


def test_progress(request_of, monkeypatch):
    """A job shows what the worker says of it, and estimates the time left from its pace."""
    now = SimpleNamespace(monotonic=lambda: now.at, at=0.0)
    monkeypatch.setattr(job_module, "time", now)
    job = Job("key", request_of())
    assert ("queued", None, False) == (job.state, job.seconds_left(), job.ended)
    running = {"state": "running", "note": "Loading the model", "done": 0, "total": 0}
    job.take(running)
    assert ("Loading the model", None) == (job.note, job.seconds_left())

    job.take(running | {"done": 100, "total": 500, "note": "Reading"})
    now.at = 20.0
    assert job.seconds_left() is None
    job.take({"formed": 8})  # says nothing of where it is
    job.take(running | {"done": 200, "total": 500, "note": "Reading"})
    assert (200, 500, 60.0) == (job.done, job.total, job.seconds_left())
    job.take(running | {"done": 10, "total": 30, "note": "Writing"})  # with a pace of its own
    now.at = 30.0
    job.take(running | {"done": 15, "total": 30, "note": "Writing"})
    assert 30.0 == job.seconds_left()
    assert not job.wait(0.01)


def test_a_result(desk):
    """It is in the store when the worker is done; a wait with a limit ends; lost, it is said."""
    assert desk.engine.result(desk.plan(), seconds=0.05) is None
    job = desk.running()
    put(desk.engine, desk.plan())
    desk.end(job)
    found = desk.engine.result(desk.plan())
    assert [2.0] == found.values["etc"].tolist()
    assert desk.engine.cached(desk.plan(5)) is None
    desk.engine.store.drop(desk.plan().key)  # what was read lately stays in memory
    assert found is desk.engine.cached(desk.plan())

    lost = desk.ask(5)
    threading.Timer(0.05, desk.say, (lost, "done")).start()
    with pytest.raises(ComputeFailed, match="POSKERNEL_CACHE_GB"):
        desk.engine.result(desk.plan(5), seconds=WAIT)


def test_errors_cross_the_pipe(desk):
    """An error is raised as the same class, with its sentence; asking again starts anew."""
    job = desk.ask()
    desk.end(job, "error", "TooLittleText", "Seven windows, no more.")
    assert (TooLittleText, "Seven windows, no more.") == (type(job.error), str(job.error))

    again = desk.ask()
    assert again is not job
    assert ("queued", 1) == (again.state, len(desk.workers))


def test_cancel(desk):
    """The job ends once the worker says so; what is not under way starts no worker."""
    desk.cancel()
    assert [] == desk.workers
    job = desk.ask()
    desk.cancel()

    assert [{"cancel": job.key}] == desk.hear(2)[1:]
    assert not job.ended
    desk.end(job, "cancelled")
    assert Cancelled is type(job.error)


def test_a_crash(desk):
    """A worker that dies fails its jobs, naming no directory; the next request starts another."""
    jobs = [desk.ask(skip) for skip in (4, 5)]
    assert ("alive", 1) == (desk.engine.worker, desk.engine.counts.worker_starts)
    desk.workers[0].die()

    for job in jobs:
        assert job.wait(WAIT)
        assert ComputeFailed is type(job.error)
        assert str(desk.engine.store.directory) not in str(job.error)
    assert "ended" == desk.engine.worker
    again = desk.ask()
    assert ("alive", 2) == (desk.engine.worker, desk.engine.counts.worker_starts)
    put(desk.engine, desk.plan())
    desk.end(again)
    assert again.error is None


def test_the_end_of_an_old_worker_is_not_the_end_of_a_new_one(desk):
    """A dead worker's pipe that closes late does not fail what its successor works on."""
    old = desk.ask()
    desk.workers[0].die(close=False)
    young = desk.ask(5)
    assert 2 == len(desk.workers)

    desk.workers[0].mouth.close()
    assert old.wait(WAIT)
    assert not young.wait(0.2)
    desk.end(young)


def test_a_worker_that_stops_listening(desk):
    """A pipe that breaks while a request is written fails that job, not the caller."""
    desk.ask()
    desk.workers[0].told.close()
    job = desk.ask(5)

    assert job.wait(WAIT)
    assert ComputeFailed is type(job.error)


def test_a_request_to_a_worker_that_has_just_ended(desk, monkeypatch):
    """Its pipe still takes the message, the listener has gone home: the job does not wait."""
    first = desk.ask()
    desk.workers[0].mouth.close()
    assert first.wait(WAIT)
    with monkeypatch.context() as patch:
        patch.setattr(Child, "alive", True)  # as it was a moment ago
        late = desk.ask(5)

    assert late.wait(WAIT)
    assert ComputeFailed is type(late.error)
    assert desk.ask(5) is not late
    assert 2 == len(desk.workers)


def test_what_is_heard_of_a_process_that_dies(tmp_path, workers):
    """Its whole events, not the one that was cut off, and once that there are no more."""
    heard = []
    child = Child("worker", Store(tmp_path), heard.append)
    (process,) = workers
    assert child.tell({"key": "a"})
    assert {"key": "a"} == process.hear()
    process.say("a", "running", done=1, total=2)
    process.mouth.write('{"key": "a", "sta')
    assert child.alive

    process.die()
    until(lambda: len(heard) > 1)
    assert not child.alive
    assert not child.tell({"key": "b"})
    child.close()
    assert process.stdout.closed
    assert [{"key": "a", "state": "running", "done": 1, "total": 2}, None] == heard


def test_bad_requests_start_no_worker(desk):
    """What cannot be met is refused at once, in the caller's thread."""
    asked = desk.plan().request
    for changes in ({"params": {"skip": 99}}, {"params": {"colour": "red"}}, {"analysis": "none"}):
        with pytest.raises(BadRequest):
            desk.engine.submit(asked.model_copy(update=changes))
    assert [] == desk.workers


def test_old_jobs_are_forgotten(desk):
    """However many requests there were, few ended jobs are kept, and none that is under way."""
    first = desk.ask(0)
    for number in range(engine_module.JOBS_KEPT + 7):
        job = desk.engine.submit(seeded(desk.plan(1), number))
        desk.hear()
        desk.end(job, "error")

    assert len(desk.engine._jobs) <= engine_module.JOBS_KEPT + 1
    assert desk.running(0) is first


def test_close_ends_waiting(desk):
    """Nobody waits for a worker that was stopped."""
    job = desk.ask()
    desk.engine.close()

    assert job.wait(WAIT)
    assert -15 == desk.workers[0].code


def scores(run):
    params = {"period": 5, "samples": 7}
    return make_plan(Request(analysis="induction-scores", run=run, params=params))


def test_what_is_counted(desk):
    """From the beginning, as 0; looks for results; jobs once each, by what they are and end as."""
    engine, counts = desk.engine, desk.engine.counts
    assert {(kind, how): 0 for kind in KINDS for how in ENDINGS} == {
        how: tally.jobs for how, tally in counts.tallies.items()
    }
    nothing = {(kind, state): 0 for kind in KINDS for state in STATES}
    assert nothing == dict(open_by_kind(engine.open_jobs()))
    assert ("none", 0) == (engine.worker, counts.worker_starts)

    jobs = [*map(desk.ask, (1, 2, 3)), engine.submit(scores(desk.plan().run))]
    desk.begin(jobs[3])
    waiting = {("analysis", "queued"): 3, ("experiment", "running"): 1}
    assert nothing | waiting == dict(open_by_kind(engine.open_jobs()))
    jobs[0].began -= 1000
    put(engine, desk.plan(1))
    for job, how in zip(jobs, ("done", "error", "cancelled", "done"), strict=True):
        desk.end(job, how)
        desk.say(job, how)  # which is heard before the next one's end
    assert nothing == dict(open_by_kind(engine.open_jobs()))
    assert {(kind, how): int(kind == "analysis" or (kind, how) == ("experiment", "done"))
            for kind in KINDS for how in ENDINGS} == {
        how: tally.jobs for how, tally in counts.tallies.items()
    }  # fmt: skip
    assert 1000 <= counts.tallies["analysis", "done"].seconds < 1000 + 60
    assert 0 <= counts.tallies["experiment", "done"].seconds < 60
    for skip in (1, 1, 1, 2):
        engine.cached(desk.plan(skip))
    assert (3, 1) == (counts.hits, counts.misses)
    depth = make_plan(Request(analysis="depth", run=desk.plan().run))
    assert "composition" == kind_of(Job("a", depth))


def test_counted_from_many_threads(request_of):
    """No count is lost."""
    counts, plan = Counts(), request_of()

    def work():
        for _ in range(500):
            counts.looked(True)
            counts.looked(False)
            Job("a", plan, on_end=counts.ended).take({"state": "done"})

    at_once(*[work] * 4)
    assert (2000, 2000) == (counts.hits, counts.misses)
    assert 2000 == counts.tallies["analysis", "done"].jobs


@pytest.fixture
def switching():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_no_job_is_lost_and_no_message_cut(desk, switching):
    """One thread asks and asks, others say "Stop here" all the time: every job hears its end."""
    first, over = desk.engine.submit(seeded(desk.plan(), 1000)), threading.Event()
    jobs, heard = [first], []

    def reads():
        while not over.is_set() or len(heard) < 1:
            heard.extend(desk.hear())

    def keeps():
        while not over.is_set():
            assert desk.engine.keep(first.plan)

    def asks():
        jobs.extend(desk.engine.submit(seeded(desk.plan(), seed)) for seed in range(100))
        over.set()
        desk.engine.keep(first.plan)  # one more message, for whoever reads

    at_once(reads, keeps, keeps, asks)
    for job in jobs:
        desk.say(job, "running", done=1, total=2)
    until(lambda: all(job.state == "running" for job in jobs))
    assert all({"keep", "tasks"} & each.keys() for each in heard)


def test_a_job_ends_once(request_of):
    """Two ends that come at the same time are told as one."""
    ends = []

    def ended(job):
        ends.append(job.state)
        if len(ends) == 1:
            other.start()
            other.join(0.3)

    job = Job("key", request_of(), on_end=ended)
    other = threading.Thread(target=job.take, args=({"state": "cancelled"},))
    job.take({"state": "done"})
    other.join(WAIT)

    assert ["done"] == ends
    assert (job.state, job.error) == ("done", None)


def test_two_answers_are_computed_side_by_side():
    """The limit on BLAS holds while any of them is computed, and is gone afterwards."""
    from threadpoolctl import ThreadpoolController

    def threads():
        blas = ThreadpoolController().select(internal_api="openblas")
        return {each.num_threads for each in blas.lib_controllers}

    before, both, seen, after = threads(), threading.Barrier(2), [], []

    def task(go_on):
        both.wait(WAIT)
        seen.append(threads())
        return Result("etc", {}, {}, {}, {})

    def answer():
        computed([task], lambda done, total: None)
        after.append(threads())

    at_once(answer, answer)
    assert [{1}, {1}] == seen
    assert before == threads() == after[-1]


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
