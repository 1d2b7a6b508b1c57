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
from tests.support import until

PASS, SUMS = True, False
RUN = RunSpec(
    model=ModelSpec(name="m", fingerprint="f"), corpus=CorpusSpec(fingerprint="c"),
    context=7, windows=1, positions=(3,),
)  # fmt: skip


def plan_of(seed=0, on_device=PASS, analysis="etc", **params):
    run = RUN.model_copy(update={"seed": seed})
    plan = make_plan(Request(analysis=analysis, run=run, params=params))
    return replace(plan, missing=(run,) if on_device else ())


def task(name, *clients, on_device=PASS):
    """A task of some clients that waits for the device, or for arithmetic."""
    return Task(name, plan_of(on_device=on_device), Execution(), clients)


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


def test_turns_of_two():
    """A turn at arithmetic costs none at the device: the next is whoever has waited longest there.

    A task of two comes up at the earlier turn, and once; whoever joins it lends it no turn later.
    """
    queue = Queue()
    for name, on_device in (("a0", PASS), ("a1", PASS), ("b0", PASS), ("a2", SUMS), ("b1", SUMS)):
        queue.put(task(name, name[0], on_device=on_device))
    came = [queue.take(each).key for each in (PASS, SUMS, SUMS, PASS, PASS)]
    assert ["a0", "a2", "b1", "b0", "a1"] == came

    queue, tasks = Queue(), [task(f"a{number}", "a") for number in range(4)]
    queue.put(*tasks)
    tasks[3].join("b")
    tasks[2].join("c")
    tasks[2].leave("c")
    assert ["a0", "a3", "a1", "a2"] == drained(queue)


def test_a_task_that_leaves_the_queue():
    """Removed, it leaves no gap; with another plan it waits elsewhere, unless it has come up."""
    queue, tasks = Queue(), [task(f"{number}", "a") for number in range(4)]
    queue.put(*tasks)
    assert queue.remove(tasks[1])
    assert not queue.remove(tasks[1])
    assert tasks[0] is queue.get(PASS)
    for each in (tasks[0], tasks[2]):
        queue.replan(each, replace(each.plan, missing=()))

    assert [tasks[3]] == queue.for_device()
    assert (["2"], ["3"]) == (drained(queue, SUMS), drained(queue))
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
    assert long is queue.get(PASS)
    long.cancel()  # since its last report: it does not wait for its next step
    with pytest.raises(Cancelled):
        queue.put(long)
    assert 0 == len(queue)


STEPS = st.tuples(st.sampled_from(["put", "get"]), st.integers(0, 4), st.booleans())


@given(st.lists(STEPS, max_size=60))
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


def message(number, visitor="", key=None, **asked):
    """A request as the engine sends it."""
    plan = plan_of(number, **asked).as_json()
    return {"key": key or f"{number}", "plan": plan, "execution": {}, "client": visitor}


class Stage:
    """A worker whose steps are those of the test; what it does, and what it says.

    `open` lets go on what holds on to it.
    """

    def __init__(self, store, monkeypatch):
        self.events, self.came, self.threads = io.StringIO(), [], set()
        self.begun, self.open, self.done = (threading.Event() for _ in range(3))
        self.worker, self._patch = Worker(store, self.events), monkeypatch
        models = SimpleNamespace(models=ModelCache())
        monkeypatch.setattr(Worker, "_start", lambda worker, report: models)

    def plays(self, **acts):
        """Put functions of the test in the place of those that work."""
        for name, act in acts.items():
            place = Worker if name.startswith("_") else worker_module.execute
            self._patch.setattr(place, name, act)

    def came_to(self, what):
        """Note what is done; whoever comes first waits until it is let go on."""
        self.came.append(what)
        self.threads.add(threading.get_ident())
        self.begun.set()
        assert self.open.wait(30)

    def serves(self, *first, then=()):
        """Send messages; further ones once a step has begun, which then goes on."""

        def lines():
            yield json.dumps({"tasks": first})
            if then:
                assert self.begun.wait(30)
                waiting = len(self.worker._queue)
                yield json.dumps({"tasks": then})
                until(lambda: len(self.worker._queue) == waiting + len(then))
            self.open.set()

        self.worker.serve(lines())

    def said(self, number):
        """All events, once there are so many."""
        until(lambda: self.events.getvalue().count("\n") == number)
        return [json.loads(line) for line in self.events.getvalue().splitlines()]


@pytest.fixture
def stage(tmp_path, monkeypatch):
    return Stage(Store(tmp_path), monkeypatch)


def test_a_computation_heeds_that_it_was_cancelled(stage):
    """It ends at its next report."""

    def step(worker, task):
        report = reporter(partial(worker._say, task.key), task.cancelled.is_set)
        report(0, 9, "Reading")
        task.cancel()
        report(1, 9, "Reading")
        return True

    stage.plays(_step=step)
    stage.serves(message(0))
    assert ["running", "cancelled"] == [event["state"] for event in stage.said(2)]


def test_cancelled_while_it_waits(stage):
    """At once, and what it waits for goes on."""

    def lines():
        yield json.dumps({"tasks": [message(0), message(1)]})
        assert stage.begun.wait(30)
        yield json.dumps({"cancel": "1"})
        assert [{"key": "1", "state": "cancelled"}] == stage.said(1)
        stage.open.set()

    stage.plays(_step=lambda worker, task: stage.came_to(task.key) or True)
    stage.worker.serve(lines())
    assert {"key": "0", "state": "done"} == stage.said(2)[1]
    assert ["0"] == stage.came


class _Broken(io.StringIO):
    """A log on a disk that is full."""

    def write(self, text):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("error", [SystemExit, MemoryError, KeyboardInterrupt, RuntimeError])
def test_nothing_ends_a_thread(stage, monkeypatch, error):
    """Whatever is raised, and be the log full: the job ends, and the lane takes the next one."""
    monkeypatch.setattr(worker_module.sys, "stderr", _Broken())

    def step(worker, task):
        stage.came.append(task)
        if len(stage.came) == 1:
            raise error("broken")
        return True

    stage.plays(_step=step)
    stage.serves(message(0), message(1))
    first, second = stage.said(2)
    assert ("error", "ComputeFailed", "done") == (first["state"], first["error"], second["state"])
    assert error.__name__ in first["message"]


@pytest.mark.parametrize("on_device", [PASS, SUMS])
def test_a_hundred_requests_of_one_delay_another_by_the_one_under_way(
    stage, monkeypatch, on_device
):
    """For passes and for arithmetic: the single request of a second visitor is the next."""
    monkeypatch.setattr(worker_module, "ARITHMETIC", 1)
    stage.plays(_step=lambda worker, task: stage.came_to(task.plan.run.seed) or True)
    stage.serves(
        *(message(number, "anna", on_device=on_device) for number in range(100)),
        then=[message(777, "ben", on_device=on_device)],
    )
    stage.said(101)
    assert [0, 777, 1] == stage.came[:3]
    assert {*range(100), 777} == set(stage.came)


def short(number):
    params = {"analysis": "own-text", "text": f"text {number}"}
    return message(number, "ben", on_device=SUMS, **params)


def test_a_pass_yields_to_short_experiments_between_its_batches(stage, monkeypatch):
    """One that comes while a pass reads runs at its next report, in the thread of the pass.

    The clock stands, so that neither of them takes more than its half of the time.
    """
    monkeypatch.setattr(worker_module, "time", SimpleNamespace(monotonic=lambda: 0.0))

    def gather_missing(shared, plan, execution, report, others, on_stage):
        for number in range(3):
            report(number, 3, "Reading")
            stage.came_to(number)

    def perform(shared, plan, execution, report, formed):
        report(0, 1, "Running")
        stage.came_to(plan.params.text)

    stage.plays(gather_missing=gather_missing, perform=perform)
    stage.plays(compute=lambda *_: stage.done.set())
    stage.serves(message(0, "anna"), then=[short(1), short(2)])

    assert stage.done.wait(30)
    assert [0, "text 1", "text 2", 1, 2] == stage.came
    assert 1 == len(stage.threads)


def test_a_pass_never_stands_still(stage, monkeypatch):
    """However many short experiments come, it has half of the time; none waits for its end."""
    now = SimpleNamespace(monotonic=lambda: now.at, sleep=time.sleep, at=0.0)

    def gather_missing(shared, plan, execution, report, others, on_stage):
        for number in range(9):
            report(number, 9, "Reading")
            stage.came.append("batch")
            now.at += 1

    def perform(shared, plan, execution, report, formed):
        stage.came.append("experiment")
        now.at += 4
        if stage.came.count("experiment") == 20:
            stage.done.set()

    monkeypatch.setattr(worker_module, "time", now)
    stage.plays(gather_missing=gather_missing, perform=perform, compute=lambda *_: None)
    stage.serves(message(0), *map(short, range(1, 21)))

    assert stage.done.wait(30)
    turns = ["experiment", *["batch"] * 4] * 2 + ["experiment", "batch"]
    assert [*turns, *["experiment"] * 17] == stage.came


def test_what_one_pass_gathered_is_handed_on_at_once(stage, monkeypatch):
    """Analyses that waited for the same pass do not wait for another one first."""
    sums = []

    def compute(store, plan, report):
        sums.append(plan.question.name)
        if len(sums) == 3:
            stage.done.set()

    stage.plays(gather_missing=lambda shared, plan, *_: stage.came_to(plan.run.seed))
    stage.plays(compute=compute)
    monkeypatch.setattr(worker_module, "missing_passes", lambda store, runs: [])
    other = message(0, "ben", key="other", analysis="profile")
    stage.serves(message(0, "anna"), then=[message(1, "anna"), other])

    assert stage.done.wait(30)
    assert [0, 1] == stage.came
