"""How tasks wait: in turn by visitor, and never past the end of their lane."""

import io
import itertools
import json
import threading
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.common.errors import Cancelled
from poskernel_core.common.specs import CorpusSpec, Execution, ModelSpec, Request, RunSpec
from poskernel_core.engine import worker as worker_module
from poskernel_core.engine.plan import make_plan
from poskernel_core.engine.process import reporter
from poskernel_core.engine.queue import Queue, Task
from poskernel_core.engine.worker import Worker
from poskernel_core.passes.worker_context import ModelCache
from poskernel_core.storage.store import Store

PASS, SUMS = True, False


def task(name, *clients, on_device=PASS):
    """A task of some clients that waits for the device, or for arithmetic."""
    run = RunSpec(
        model=ModelSpec(name="m", fingerprint="f"), corpus=CorpusSpec(fingerprint="c"),
        context=7, windows=1, positions=(3,),
    )  # fmt: skip
    plan = make_plan(Request(analysis="etc", run=run))
    return Task(name, replace(plan, missing=(run,) if on_device else ()), Execution(), clients)


def drained(queue, on_device=PASS):
    """The names of the tasks in the order in which they come up."""
    return [each.key for each in iter(lambda: queue.take(on_device), None)]


@pytest.mark.parametrize("on_device", [PASS, SUMS])
def test_visitors_take_turns(on_device):
    """Somebody who asks for many things waits for them himself; the others do not."""
    queue = Queue()
    for name in ("a0", "a1", "a2", "a3", "a4", "b0", "c0", "b1"):
        queue.put(task(name, name[0], on_device=on_device))

    assert [] == drained(queue, not on_device)
    assert ["a0", "b0", "c0", "a1", "b1", "a2", "a3", "a4"] == drained(queue, on_device)


def test_a_turn_at_arithmetic_costs_none_at_the_device():
    """The next pass is that of whoever has waited longest for one."""
    queue = Queue()
    for name in ("a0", "a1", "b0"):
        queue.put(task(name, name[0]))
    for name in ("a2", "b1"):
        queue.put(task(name, name[0], on_device=SUMS))

    came = [queue.take(each).key for each in (PASS, SUMS, SUMS, PASS, PASS)]
    assert ["a0", "a2", "b1", "b0", "a1"] == came


def test_a_task_of_two_comes_up_at_the_earlier_turn_and_once():
    """Whoever joins a task that waits far back moves it forward, and lends it no turn later."""
    queue, tasks = Queue(), [task(f"a{number}", "a") for number in range(4)]
    queue.put(*tasks)
    tasks[3].join("b")
    tasks[2].join("c")
    tasks[2].leave("c")

    assert ["a0", "a3", "a1", "a2"] == drained(queue)


def test_a_removed_task_does_not_come_up():
    """It leaves no gap, and can be told from one that was not there."""
    queue, tasks = Queue(), [task(f"{number}", "a") for number in range(3)]
    queue.put(*tasks)

    assert queue.remove(tasks[1])
    assert not queue.remove(tasks[1])
    assert ["0", "2"] == drained(queue)


def test_what_lacks_nothing_any_more_waits_for_arithmetic():
    """Another plan moves a task that waits, not one that has come up."""
    queue, tasks = Queue(), [task(name, "a") for name in ("first", "second")]
    queue.put(*tasks)
    assert tasks[0] is queue.get(PASS)
    for each in tasks:
        queue.replan(each, replace(each.plan, missing=()))

    assert [] == queue.for_device()
    assert ["second"] == drained(queue, SUMS)
    assert tasks[0].plan.missing


def test_a_task_that_goes_on_later_lets_others_in_between():
    """It is put again when its turn is over, and stands behind whoever waits by then."""
    queue, came = Queue(), []
    long = task("long", "a")
    queue.put(long, task("b0", "b"), task("c0", "c"))
    for _ in range(4):
        came.append(queue.get(PASS).key)
        if came[-1] == "long":
            queue.put(long)

    assert ["long", "b0", "c0", "long"] == came


def test_a_cancel_between_two_steps():
    """A task that was cancelled since its last report does not wait for its next step."""
    queue, one = Queue(), task("one", "a")
    queue.put(one)
    assert queue.get(PASS) is one

    one.cancel()
    with pytest.raises(Cancelled):
        queue.put(one)
    assert 0 == len(queue)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 4), st.booleans()),
            st.tuples(st.just("get"), st.just(0), st.booleans()),
        ),
        max_size=60,
    )
)
def test_between_two_turns_of_one_everybody_who_waited_has_one(steps):
    """Whenever tasks come: none is lost, each client's come in order, nobody is passed twice."""
    queue, waiting, passed = Queue(), {PASS: {}, SUMS: {}}, {PASS: {}, SUMS: {}}
    put = itertools.count()

    def served(on_device):
        rows, missed = waiting[on_device], passed[on_device]
        client, number = queue.get(on_device).key.split()
        assert int(number) == rows[client].pop(0)
        missed.pop(client, None)
        for other in (each for each, row in rows.items() if row and each != client):
            missed.setdefault(other, []).append(client)
            assert len(set(missed[other])) == len(missed[other])

    for what, client, on_device in steps:
        rows = waiting[on_device]
        if what == "put":
            number = next(put)
            queue.put(task(f"{client} {number}", f"{client}", on_device=on_device))
            rows.setdefault(f"{client}", []).append(number)
        elif any(rows.values()):
            served(on_device)
    for on_device, rows in waiting.items():
        while any(rows.values()):
            served(on_device)
    assert 0 == len(queue)


@pytest.fixture
def events():
    """What the worker says."""
    return io.StringIO()


def message(number, visitor="", passes=False, analysis="etc", **params):
    """A request as the engine sends it."""
    run = RunSpec(
        model=ModelSpec(name="m", fingerprint="f"),
        corpus=CorpusSpec(fingerprint="c"),
        context=7,
        windows=1,
        positions=(3,),
        seed=number,
    )
    plan = make_plan(Request(analysis=analysis, run=run, params=params))
    plan = replace(plan, missing=(run,) if passes else ())
    task = {"key": f"{number}", "plan": plan.as_json(), "execution": {}, "client": visitor}
    return {"tasks": [task]}


def said(events):
    """All events so far."""
    return [json.loads(line) for line in events.getvalue().splitlines()]


def test_a_computation_heeds_that_it_was_cancelled(tmp_path, events, monkeypatch):
    """It ends at its next report."""
    ended = threading.Event()

    def step(self, task):
        report = reporter(partial(self._say, task.key), task.cancelled.is_set)
        report(0, 9, "Reading")
        task.cancel()
        report(1, 9, "Reading")
        return True

    monkeypatch.setattr(Worker, "_step", step)
    monkeypatch.setattr(
        Worker, "_end", lambda self, task, ending: (self._say(task.key, ending), ended.set())
    )
    Worker(Store(tmp_path), events).serve([json.dumps(message(0))])

    assert ended.wait(10)
    assert ["running", "cancelled"] == [event["state"] for event in said(events)]


class _Broken(io.StringIO):
    """A log on a disk that is full."""

    def write(self, text):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("error", [SystemExit, MemoryError, KeyboardInterrupt, RuntimeError])
def test_nothing_ends_a_thread(tmp_path, events, monkeypatch, error):
    """Whatever is raised, and be the log full: the job ends, and the lane takes the next one."""
    monkeypatch.setattr(worker_module.sys, "stderr", _Broken())
    monkeypatch.setattr(worker_module, "ARITHMETIC", 1)
    done, calls = threading.Event(), []

    def step(self, task):
        calls.append(task)
        if len(calls) == 1:
            raise error("broken")
        done.set()
        return True

    monkeypatch.setattr(Worker, "_step", step)
    worker = Worker(Store(tmp_path), events)
    worker.serve([json.dumps(message(number)) for number in range(2)])

    assert done.wait(10)
    for _ in range(100):
        if 2 == len(said(events)):
            break
        threading.Event().wait(0.05)
    assert [("error", "ComputeFailed"), ("done", None)] == [
        (event["state"], event.get("error")) for event in said(events)
    ]
    assert error.__name__ in said(events)[0]["message"]


@pytest.mark.parametrize("passes", [True, False])
def test_a_hundred_requests_of_one_delay_another_by_the_one_under_way(
    tmp_path, events, monkeypatch, passes
):
    """For passes and for arithmetic: the single request of a second visitor is the next."""
    monkeypatch.setattr(worker_module, "ARITHMETIC", 1)
    began, go_on, came = threading.Event(), threading.Event(), []
    done = threading.Event()

    def step(self, task):
        came.append(task.plan.run.seed)
        if len(came) == 1:
            began.set()
            assert go_on.wait(30)
        if len(came) == 101:
            done.set()
        return True

    monkeypatch.setattr(Worker, "_step", step)
    worker = Worker(Store(tmp_path), events)

    def lines():
        for number in range(100):
            yield json.dumps(message(number, "anna", passes))
        assert began.wait(30)
        yield json.dumps(message(777, "ben", passes))
        for _ in range(600):
            if 100 == len(worker._queue):
                break
            threading.Event().wait(0.05)
        go_on.set()

    worker.serve(lines())

    assert done.wait(30)
    assert [0, 777, 1] == came[:3]
    assert {*range(100), 777} == set(came)


def test_a_pass_yields_to_short_experiments_between_its_batches(tmp_path, events, monkeypatch):
    """One that comes while a pass reads runs at its next report, in the thread of the pass."""
    came, begun, together, done = [], threading.Event(), threading.Event(), threading.Event()
    threads = set()

    def gather_missing(shared, plan, execution, report, others, on_stage):
        for number in range(3):
            report(number, 3, "Reading")
            came.append(("batch", number))
            threads.add(threading.get_ident())
            begun.set()
            assert together.wait(30)

    def perform(shared, plan, execution, report):
        report(0, 1, "Running")
        came.append(("experiment", plan.params.text))
        threads.add(threading.get_ident())

    def compute(store, plan, report):
        done.set()

    monkeypatch.setattr(Worker, "_start", lambda self, report: SimpleNamespace(models=ModelCache()))
    for name, does in (("gather_missing", gather_missing), ("perform", perform)):
        monkeypatch.setattr(worker_module.execute, name, does)
    monkeypatch.setattr(worker_module.execute, "compute", compute)
    worker = Worker(Store(tmp_path), events)

    def lines():
        yield json.dumps(message(0, "anna", passes=True))
        assert begun.wait(30)
        for number in (1, 2):
            yield json.dumps(message(number, "ben", analysis="own-text", text=f"text {number}"))
        for _ in range(600):
            if 2 == len(worker._queue):
                break
            threading.Event().wait(0.05)
        together.set()

    worker.serve(lines())

    assert done.wait(30)
    shorts = [("experiment", f"text {number}") for number in (1, 2)]
    assert [("batch", 0), *shorts, ("batch", 1), ("batch", 2)] == came
    assert 1 == len(threads)


def test_a_pass_never_stands_still(tmp_path, events, monkeypatch):
    """However many short experiments come, it has half of the time; none waits for its end."""
    came, done, now = [], threading.Event(), [0.0]

    def gather_missing(shared, plan, execution, report, others, on_stage):
        for number in range(9):
            report(number, 9, "Reading")
            came.append("batch")
            now[0] += 1

    def perform(shared, plan, execution, report):
        came.append("experiment")
        now[0] += 4
        if came.count("experiment") == 20:
            done.set()

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep)
    monkeypatch.setattr(worker_module, "time", clock)
    monkeypatch.setattr(worker_module.execute, "gather_missing", gather_missing)
    monkeypatch.setattr(worker_module.execute, "perform", perform)
    monkeypatch.setattr(worker_module.execute, "compute", lambda *_: None)
    monkeypatch.setattr(Worker, "_start", lambda self, report: SimpleNamespace(models=ModelCache()))
    short = [message(number, analysis="own-text", text=f"text {number}") for number in range(1, 21)]
    tasks = [each for one in (message(0, passes=True), *short) for each in one["tasks"]]
    Worker(Store(tmp_path), events).serve([json.dumps({"tasks": tasks})])

    assert done.wait(30)
    turns = ["experiment", *["batch"] * 4] * 2 + ["experiment", "batch"]
    assert [*turns, *["experiment"] * 17] == came


def test_what_one_pass_gathered_is_handed_on_at_once(tmp_path, events, monkeypatch):
    """Analyses that waited for the same pass do not wait for another one first."""
    came, begun, go_on, done = [], threading.Event(), threading.Event(), threading.Event()

    def gather_missing(shared, plan, execution, report, others, on_stage):
        came.append(("pass", plan.run.seed))
        begun.set()
        assert go_on.wait(30)

    def compute(store, plan, report):
        came.append(("sums", plan.question.name))
        if 3 == sum(kind == "sums" for kind, _ in came):
            done.set()

    monkeypatch.setattr(Worker, "_start", lambda self, report: SimpleNamespace(models=ModelCache()))
    monkeypatch.setattr(worker_module.execute, "gather_missing", gather_missing)
    monkeypatch.setattr(worker_module.execute, "compute", compute)
    monkeypatch.setattr(worker_module, "missing_passes", lambda store, runs: [])
    worker = Worker(Store(tmp_path), events)

    def lines():
        yield json.dumps(message(0, "anna", passes=True))
        assert begun.wait(30)
        first = message(0, "ben", passes=True, analysis="profile")
        first["tasks"][0]["key"] = "other"
        yield json.dumps(message(1, "anna", passes=True))
        yield json.dumps(first)
        for _ in range(600):
            if 2 == len(worker._queue):
                break
            threading.Event().wait(0.05)
        go_on.set()

    worker.serve(lines())

    assert done.wait(30)
    assert [("pass", 0), ("pass", 1)] == [each for each in came if each[0] == "pass"]
