"""The engine's side of its pipe to the worker, with a worker that does what the test says."""

import contextlib
import threading
import time

import numpy as np
import pytest

from poskernel_core.common.errors import BadRequest, Busy, Cancelled, ComputeFailed, TooLittleText
from poskernel_core.common.result import Result
from poskernel_core.common.specs import CorpusSpec, Request
from poskernel_core.engine import engine as engine_module
from poskernel_core.engine import worker_client as link_module
from poskernel_core.engine.engine import Engine, describe_run
from poskernel_core.engine.job import Job
from poskernel_core.engine.provenance import to_entry
from poskernel_core.engine.requests import canonical
from poskernel_core.storage.store import Store
from tests.fake_worker import FakeWorker

WAIT = 10.0


@pytest.fixture
def workers(monkeypatch):
    """The workers started so far."""
    made = []
    monkeypatch.setattr(link_module.subprocess, "Popen", lambda *_, **__: FakeWorker(made))
    yield made
    for worker in made:
        for pipe in (worker.told, worker.mouth, worker.stdin, worker.stdout):
            with contextlib.suppress(OSError):
                pipe.close()


@pytest.fixture
def engine(tmp_path):
    """An engine on an empty store."""
    made = Engine(Store(tmp_path))
    yield made
    made.close()
    made.store.close()


@pytest.fixture(scope="module")
def request_of(model_dirs):
    """A request for the heat map with some skip."""
    run = describe_run(
        str(model_dirs["gpt2"]), corpus=CorpusSpec(name="text", text="She sells."), windows=7
    )
    return lambda skip=4: canonical(Request(analysis="etc", run=run, params={"skip": skip}))


def until(condition):
    """Wait for something that another thread is about to do."""
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def write(engine, request):
    """Put a result into the store, as the worker does before it says that it is done."""
    result = Result("etc", {}, {"etc": np.array([2.0])}, {"etc": ("layer",)}, {"etc": "tokens"})
    engine.store.put(request.key, *to_entry(result))


def test_equal_requests_share_a_job(engine, workers, request_of):
    """Two threads that ask for one thing get one job, and one message goes to the worker."""
    jobs, gate = [], threading.Barrier(2)

    def ask():
        gate.wait()
        jobs.append(engine.submit(request_of()))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other = engine.submit(request_of(5))

    assert jobs[0] is jobs[1] is not other
    assert 1 == len(workers)
    assert [4, 5] == [workers[0].hear()["request"]["params"]["skip"] for _ in range(2)]
    assert engine.running(request_of()) is jobs[0]


def test_progress(engine, workers, request_of):
    """A job shows what the worker says of it, and estimates the time left from its pace."""
    job = engine.submit(request_of())
    say = workers[0].say
    assert ("queued", None, False) == (job.state, job.seconds_left(), job.ended)

    say(job.key, "running", done=0, total=0, note="Loading the model")
    until(lambda: job.note == "Loading the model" and job.seconds_left() is None)
    say(job.key, "running", done=100, total=500, note="Reading")
    until(lambda: job.total == 500)
    began = time.monotonic()
    time.sleep(0.2)
    say(job.key, "running", done=200, total=500, note="Reading")
    until(lambda: job.done == 200)

    assert not job.wait(0.01)
    assert 0.6 <= job.seconds_left() <= 3.2 * (time.monotonic() - began)


def test_a_result(engine, workers, request_of):
    """When the worker is done the result is in the store, and is not computed again."""
    job = engine.submit(request_of())
    write(engine, request_of())
    workers[0].say(job.key, "done")

    assert job.wait(WAIT)
    assert "done" == job.state
    assert [2.0] == engine.result(request_of()).values["etc"].tolist()
    assert engine.cached(request_of(5)) is None


def test_a_result_that_takes_long(engine, workers, request_of):
    """Within a time limit there is a result or None, never an endless wait."""
    assert engine.result(request_of(), seconds=0.05) is None
    assert "queued" == engine.running(request_of()).state


def test_a_result_that_vanished(engine, workers, request_of):
    """Done, but not in the store: the message names the setting for its size."""
    job = engine.submit(request_of())
    threading.Timer(0.05, workers[0].say, (job.key, "done")).start()

    with pytest.raises(ComputeFailed, match="POSKERNEL_CACHE_GB"):
        engine.result(request_of(), seconds=WAIT)


def test_errors_cross_the_pipe(engine, workers, request_of):
    """An error of the worker is raised here as the same class, with its sentence."""
    job = engine.submit(request_of())
    workers[0].say(job.key, "error", error="TooLittleText", message="Seven windows, no more.")

    assert job.wait(WAIT)
    assert TooLittleText is type(job.error)
    assert "Seven windows, no more." == str(job.error)


def test_after_an_error(engine, workers, request_of):
    """Asking again starts anew."""
    job = engine.submit(request_of())
    workers[0].say(job.key, "error", error="ComputeFailed", message="Broken.")
    job.wait(WAIT)

    again = engine.submit(request_of())

    assert again is not job
    assert ("queued", 1) == (again.state, len(workers))


def test_cancel(engine, workers, request_of):
    """The worker is told, and the job ends once the worker says so."""
    job = engine.submit(request_of())
    workers[0].hear()

    engine.cancel(request_of())

    assert {"cancel": job.key} == workers[0].hear()
    assert not job.ended
    workers[0].say(job.key, "cancelled")
    assert job.wait(WAIT)
    assert Cancelled is type(job.error)


def test_cancelled_by_one_of_two(engine, workers, request_of):
    """The work goes on for the other visitor, and stops when he has cancelled too."""
    job = engine.submit(request_of(), "anna")
    assert job is engine.submit(request_of(), "ben")
    workers[0].hear()
    assert {"join": job.key, "visitor": "ben"} == workers[0].hear()

    assert not engine.cancel(request_of(), "anna")
    assert not engine.cancel(request_of(), "anna")
    assert not engine.cancel(request_of(), "a stranger")
    assert engine.cancel(request_of(), "ben")

    assert {"leave": job.key, "visitor": "anna"} == workers[0].hear()
    assert {"cancel": job.key} == workers[0].hear()


def test_cancelled_while_the_other_has_left(engine, workers, request_of):
    """Whoever has closed the page keeps nobody from cancelling."""
    there = {"anna", "ben"}
    engine._present = there.__contains__
    job = engine.submit(request_of(), "anna")
    engine.submit(request_of(), "ben")
    there.remove("ben")

    assert not engine.cancel(request_of(), "a stranger")
    assert engine.cancel(request_of(), "anna")
    assert [{"join": job.key, "visitor": "ben"}, {"cancel": job.key}] == [
        workers[0].hear() for _ in range(3)
    ][1:]


def test_what_nobody_waits_for_is_dropped(engine, workers, request_of, monkeypatch):
    """A job that waits its turn is cancelled once its visitors are gone; one that runs is not."""
    monkeypatch.setattr(engine_module, "GRACE_SECONDS", 0.0)
    there = {"anna", "ben"}
    engine._present = there.__contains__
    waiting = engine.submit(request_of(4), "anna")
    both = engine.submit(request_of(5), "anna")
    engine.submit(request_of(5), "ben")
    running = engine.submit(request_of(6), "anna")
    own = engine.submit(request_of(7))
    there.remove("anna")
    engine._present = lambda visitor: visitor in there or not visitor
    workers[0].say(running.key, "running", done=1, total=7, note="Reading")
    until(lambda: running.state == "running")
    for _ in range(5):
        workers[0].hear()

    engine.drop_abandoned()
    assert [job.missed_since is None for job in (waiting, both, running, own)] == [
        False, True, True, True,
    ]  # fmt: skip
    engine.drop_abandoned()

    assert {"cancel": waiting.key} == workers[0].hear()


def test_a_visitor_who_comes_back(engine, workers, request_of):
    """Whoever reloads the page in time finds the job still waiting."""
    there = {"anna"}
    engine._present = there.__contains__
    job = engine.submit(request_of(), "anna")
    there.clear()
    engine.drop_abandoned()
    assert job.missed_since is not None
    there.add("anna again")

    assert job is engine.submit(request_of(), "anna again")
    engine.drop_abandoned()

    assert job.missed_since is None


def test_one_visitor_may_not_ask_for_everything(engine, workers, request_of, monkeypatch):
    """Above a number of open jobs he is told so; others, and programs of one's own, are not."""
    monkeypatch.setenv("POSKERNEL_MOST_OPEN", "3")
    for skip in range(3):
        engine.submit(request_of(skip), "anna")

    with pytest.raises(Busy, match=r"up to 3 computations of one reader .* 3 of yours wait or run"):
        engine.submit(request_of(7), "anna")
    engine.submit(request_of(2), "anna")
    engine.submit(request_of(7), "ben")
    assert engine.submit(request_of(7), "anna")  # it is under way for ben in any case
    for skip in range(8, 15):
        engine.submit(request_of(skip))


def test_all_visitors_together_have_a_bound(engine, workers, request_of, monkeypatch):
    """It counts what any of them wait for; what a program of one's own asks for is apart."""
    monkeypatch.setenv("POSKERNEL_MOST_OPEN_IN_ALL", "2")
    engine.submit(request_of(0))
    engine.submit(request_of(1), "anna")
    engine.submit(request_of(2), "ben")

    with pytest.raises(Busy, match="up to 2 computations at a time, and 2 of its readers'"):
        engine.submit(request_of(3), "carl")
    engine.submit(request_of(4))


@pytest.fixture
def tabs(engine):
    """Who has opened a tab of the browser: ``anna 3`` is a tab of Anna's."""
    engine._person = lambda visitor: visitor.partition(" ")[0]
    return engine


def test_many_tabs_of_one_person_have_one_turn_and_one_bound(
    tabs, workers, request_of, monkeypatch
):
    """The worker hears of the person; other people's tabs count for themselves."""
    monkeypatch.setenv("POSKERNEL_MOST_OPEN", "3")
    for number in range(3):
        tabs.submit(request_of(number), f"anna {number}")

    assert ["anna"] * 3 == [workers[0].hear()["visitor"] for _ in range(3)]
    with pytest.raises(Busy):
        tabs.submit(request_of(7), "anna 99")
    tabs.submit(request_of(7), "ben 1")
    assert "ben" == workers[0].hear()["visitor"]


def test_one_tab_does_not_cancel_what_another_waits_for(tabs, workers, request_of):
    """Also where both are of one person, or of two people who share an address."""
    job = tabs.submit(request_of(), "school 1")
    assert job is tabs.submit(request_of(), "school 2")
    tabs.submit(request_of(), "anna 1")
    workers[0].hear()
    assert {"join": job.key, "visitor": "anna"} == workers[0].hear()

    assert not tabs.cancel(request_of(), "school 1")
    assert not tabs.cancel(request_of(), "school 1")
    assert not tabs.cancel(request_of(), "school 3")
    assert not tabs.cancel(request_of(), "")
    assert not tabs.cancel(request_of(), "school 2")
    assert {"leave": job.key, "visitor": "school"} == workers[0].hear()  # the last of its tabs
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


def test_cancel_nothing(engine, workers, request_of):
    """Cancelling what is not under way does nothing, and starts no worker."""
    engine.cancel(request_of())

    assert [] == workers


def test_a_crash(engine, workers, request_of):
    """A worker that dies fails its jobs, naming no directory; the next request starts another."""
    jobs = [engine.submit(request_of(skip)) for skip in (4, 5)]
    workers[0].die()

    for job in jobs:
        assert job.wait(WAIT)
        assert ComputeFailed is type(job.error)
        assert str(engine.store.directory) not in str(job.error)
    again = engine.submit(request_of())
    assert 2 == len(workers)
    write(engine, request_of())
    workers[1].say(again.key, "done")
    assert again.wait(WAIT)
    assert again.error is None


def test_the_end_of_an_old_worker_is_not_the_end_of_a_new_one(engine, workers, request_of):
    """A dead worker's pipe that closes late does not fail what its successor works on."""
    old = engine.submit(request_of())
    workers[0].die(close=False)
    young = engine.submit(request_of(5))
    assert 2 == len(workers)

    workers[0].mouth.close()
    assert old.wait(WAIT)
    assert not young.wait(0.2)
    workers[1].say(young.key, "done")
    assert young.wait(WAIT)
    assert "done" == young.state


def test_a_worker_that_stops_listening(engine, workers, request_of):
    """A pipe that breaks while a request is written fails that job, not the caller."""
    engine.submit(request_of())
    workers[0].told.close()

    job = engine.submit(request_of(5))

    assert job.wait(WAIT)
    assert ComputeFailed is type(job.error)


def test_a_request_to_a_worker_that_has_just_ended(engine, workers, request_of):
    """Its pipe still takes the message, the listener has gone home: the job does not wait."""
    first = engine.submit(request_of())
    link = engine._link
    workers[0].mouth.close()
    assert first.wait(WAIT)
    until(lambda: not link.alive)

    late = Job("late", request_of(5))
    link.send({"request": {}}, late)

    assert late.wait(WAIT)
    assert ComputeFailed is type(late.error)
    assert engine.submit(request_of(5)) is not late
    assert 2 == len(workers)


def test_bad_requests_start_no_worker(engine, workers, request_of):
    """What cannot be met is refused at once, in the caller's thread."""
    for params in ({"skip": 99}, {"colour": "red"}):
        with pytest.raises(BadRequest):
            engine.submit(request_of().wire.model_copy(update={"params": params}))
    with pytest.raises(BadRequest, match="No analysis"):
        engine.submit(request_of().wire.model_copy(update={"analysis": "nonsense"}))

    assert [] == workers


def test_old_jobs_are_forgotten(engine, workers, request_of):
    """However many requests there were, few ended jobs are kept, and none that is under way."""
    first = engine.submit(request_of(0))
    for number in range(engine_module.JOBS_KEPT + 7):
        run = request_of().run.model_copy(update={"seed": number})
        job = engine.submit(request_of(1).wire.model_copy(update={"run": run}))
        workers[0].hear()
        workers[0].say(job.key, "error", error="ComputeFailed", message="Broken.")
        assert job.wait(WAIT)

    assert len(engine._jobs) <= engine_module.JOBS_KEPT + 1
    assert engine.running(request_of(0)) is first


def test_close_ends_waiting(engine, workers, request_of):
    """Nobody waits for a worker that was stopped."""
    job = engine.submit(request_of())
    engine.close()

    assert job.wait(WAIT)
    assert -15 == workers[0].code
