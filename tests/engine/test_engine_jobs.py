"""The engine's side of its pipe to the worker, with a worker that does what the test says."""

import threading
import time

import numpy as np
import pytest

from poskernel_core.common.errors import BadRequest, Cancelled, ComputeFailed, TooLittleText
from poskernel_core.common.result import Result
from poskernel_core.engine import engine as engine_module
from poskernel_core.engine.process import Child
from poskernel_core.engine.provenance import to_entry
from tests.support.fake_worker import WAIT, until


def write(fresh_engine, request):
    """Put a result into the store, as the worker does before it says that it is done."""
    result = Result("etc", {}, {"etc": np.array([2.0])}, {"etc": ("layer",)}, {"etc": "tokens"})
    fresh_engine.store.put(request.key, *to_entry(result))


def test_equal_requests_share_a_job(fresh_engine, workers, request_of):
    """Two threads that ask for one thing get one job, and one message goes to the worker."""
    jobs, gate = [], threading.Barrier(2)

    def ask():
        gate.wait()
        jobs.append(fresh_engine.submit(request_of()))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other = fresh_engine.submit(request_of(5))

    assert jobs[0] is jobs[1] is not other
    assert 1 == len(workers)
    assert [4, 5] == [workers[0].hear()["tasks"][0]["plan"]["params"]["skip"] for _ in range(2)]
    assert fresh_engine.running(request_of()) is jobs[0]


def test_progress(fresh_engine, workers, request_of):
    """A job shows what the worker says of it, and estimates the time left from its pace."""
    job = fresh_engine.submit(request_of())
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


def test_a_result(fresh_engine, workers, request_of):
    """When the worker is done the result is in the store, and is not computed again."""
    job = fresh_engine.submit(request_of())
    write(fresh_engine, request_of())
    workers[0].say(job.key, "done")

    assert job.wait(WAIT)
    assert "done" == job.state
    assert [2.0] == fresh_engine.result(request_of()).values["etc"].tolist()
    assert fresh_engine.cached(request_of(5)) is None


def test_a_result_that_takes_long(fresh_engine, workers, request_of):
    """Within a time limit there is a result or None, never an endless wait."""
    assert fresh_engine.result(request_of(), seconds=0.05) is None
    assert "queued" == fresh_engine.running(request_of()).state


def test_a_result_that_vanished(fresh_engine, workers, request_of):
    """Done, but not in the store: the message names the setting for its size."""
    job = fresh_engine.submit(request_of())
    threading.Timer(0.05, workers[0].say, (job.key, "done")).start()

    with pytest.raises(ComputeFailed, match="POSKERNEL_CACHE_GB"):
        fresh_engine.result(request_of(), seconds=WAIT)


def test_errors_cross_the_pipe(fresh_engine, workers, request_of):
    """An error of the worker is raised here as the same class, with its sentence."""
    job = fresh_engine.submit(request_of())
    workers[0].say(job.key, "error", error="TooLittleText", message="Seven windows, no more.")

    assert job.wait(WAIT)
    assert TooLittleText is type(job.error)
    assert "Seven windows, no more." == str(job.error)


def test_after_an_error(fresh_engine, workers, request_of):
    """Asking again starts anew."""
    job = fresh_engine.submit(request_of())
    workers[0].say(job.key, "error", error="ComputeFailed", message="Broken.")
    job.wait(WAIT)

    again = fresh_engine.submit(request_of())

    assert again is not job
    assert ("queued", 1) == (again.state, len(workers))


def test_cancel(fresh_engine, workers, request_of):
    """The worker is told, and the job ends once the worker says so."""
    job = fresh_engine.submit(request_of())
    workers[0].hear()

    fresh_engine.cancel(request_of())

    assert {"cancel": job.key} == workers[0].hear()
    assert not job.ended
    workers[0].say(job.key, "cancelled")
    assert job.wait(WAIT)
    assert Cancelled is type(job.error)


def test_cancel_nothing(fresh_engine, workers, request_of):
    """Cancelling what is not under way does nothing, and starts no worker."""
    fresh_engine.cancel(request_of())

    assert [] == workers


def test_a_crash(fresh_engine, workers, request_of):
    """A worker that dies fails its jobs, naming no directory; the next request starts another."""
    jobs = [fresh_engine.submit(request_of(skip)) for skip in (4, 5)]
    workers[0].die()

    for job in jobs:
        assert job.wait(WAIT)
        assert ComputeFailed is type(job.error)
        assert str(fresh_engine.store.directory) not in str(job.error)
    again = fresh_engine.submit(request_of())
    assert 2 == len(workers)
    write(fresh_engine, request_of())
    workers[1].say(again.key, "done")
    assert again.wait(WAIT)
    assert again.error is None


def test_the_end_of_an_old_worker_is_not_the_end_of_a_new_one(fresh_engine, workers, request_of):
    """A dead worker's pipe that closes late does not fail what its successor works on."""
    old = fresh_engine.submit(request_of())
    workers[0].die(close=False)
    young = fresh_engine.submit(request_of(5))
    assert 2 == len(workers)

    workers[0].mouth.close()
    assert old.wait(WAIT)
    assert not young.wait(0.2)
    workers[1].say(young.key, "done")
    assert young.wait(WAIT)
    assert "done" == young.state


def test_a_worker_that_stops_listening(fresh_engine, workers, request_of):
    """A pipe that breaks while a request is written fails that job, not the caller."""
    fresh_engine.submit(request_of())
    workers[0].told.close()

    job = fresh_engine.submit(request_of(5))

    assert job.wait(WAIT)
    assert ComputeFailed is type(job.error)


def test_a_request_to_a_worker_that_has_just_ended(fresh_engine, workers, request_of, monkeypatch):
    """Its pipe still takes the message, the listener has gone home: the job does not wait."""
    first = fresh_engine.submit(request_of())
    workers[0].mouth.close()
    assert first.wait(WAIT)

    with monkeypatch.context() as patch:
        patch.setattr(Child, "alive", True)  # as it was a moment ago
        late = fresh_engine.submit(request_of(5))

    assert late.wait(WAIT)
    assert ComputeFailed is type(late.error)
    assert fresh_engine.submit(request_of(5)) is not late
    assert 2 == len(workers)


def test_bad_requests_start_no_worker(fresh_engine, workers, request_of):
    """What cannot be met is refused at once, in the caller's thread."""
    for params in ({"skip": 99}, {"colour": "red"}):
        with pytest.raises(BadRequest):
            fresh_engine.submit(request_of().request.model_copy(update={"params": params}))
    with pytest.raises(BadRequest, match="No analysis"):
        fresh_engine.submit(request_of().request.model_copy(update={"analysis": "nonsense"}))

    assert [] == workers


def test_old_jobs_are_forgotten(fresh_engine, workers, request_of):
    """However many requests there were, few ended jobs are kept, and none that is under way."""
    first = fresh_engine.submit(request_of(0))
    request = request_of(1).request
    for number in range(engine_module.JOBS_KEPT + 7):
        run = request.run.model_copy(update={"seed": number})
        job = fresh_engine.submit(request.model_copy(update={"run": run}))
        workers[0].hear()
        workers[0].say(job.key, "error", error="ComputeFailed", message="Broken.")
        assert job.wait(WAIT)

    assert len(fresh_engine._jobs) <= engine_module.JOBS_KEPT + 1
    assert fresh_engine.running(request_of(0)) is first


def test_close_ends_waiting(fresh_engine, workers, request_of):
    """Nobody waits for a worker that was stopped."""
    job = fresh_engine.submit(request_of())
    fresh_engine.close()

    assert job.wait(WAIT)
    assert -15 == workers[0].code
