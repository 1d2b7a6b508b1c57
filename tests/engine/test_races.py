"""What several threads do at once to one engine, one job, one computation."""

import sys
import threading

import pytest

from poskernel_core.analyses.replicates import computed
from poskernel_core.common.result import Result
from poskernel_core.engine.job import Job
from poskernel_core.engine.plan import plan_of
from tests.support.fake_worker import WAIT, until


@pytest.fixture
def switching():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_no_job_is_lost_and_no_message_cut(fresh_engine, workers, request_of, switching):
    """One thread asks and asks, others say "Stop here" all the time: every job hears its end."""

    def asked(seed):
        plan = request_of()
        return plan_of(plan.question, plan.run.model_copy(update={"seed": seed}), plan.params)

    first, over = fresh_engine.submit(asked(1000)), threading.Event()
    heard = []
    (worker,) = workers

    def reads():
        while not over.is_set() or len(heard) < 1:
            heard.append(worker.hear())

    def keeps():
        while not over.is_set():
            assert fresh_engine.keep(asked(1000))

    threads = [threading.Thread(target=each, daemon=True) for each in (reads, keeps, keeps)]
    for thread in threads:
        thread.start()
    jobs = [fresh_engine.submit(asked(seed)) for seed in range(100)]
    over.set()
    for thread in threads[1:]:
        thread.join(WAIT)
    for job in [first, *jobs]:
        worker.say(job.key, "running", done=1, total=2)

    until(lambda: all(job.state == "running" for job in [first, *jobs]))
    fresh_engine.keep(asked(1000))
    threads[0].join(WAIT)
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

    before, both, seen = threads(), threading.Barrier(2), []

    def task(go_on):
        both.wait(WAIT)
        seen.append(threads())
        return Result("etc", {}, {}, {}, {})

    def answer():
        computed([task], lambda done, total: None)
        after.append(threads())

    answers, after = [threading.Thread(target=answer) for _ in range(2)], []
    for each in answers:
        each.start()
    for each in answers:
        each.join(2 * WAIT)

    assert [{1}, {1}] == seen
    assert before == threads() == after[-1]
