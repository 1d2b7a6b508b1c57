"""How tasks wait: in turn by visitor, and never past the end of their lane."""

import io
import json
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.common.specs import CorpusSpec, ModelSpec, Request, RunSpec
from poskernel_core.engine import worker as worker_module
from poskernel_core.engine.plan import make_plan
from poskernel_core.engine.queue import FairQueue
from poskernel_core.engine.worker import Worker
from poskernel_core.storage.store import Store


def drained(lane):
    """The tasks of a lane in the order in which they come up."""
    return [lane.get() for _ in range(len(lane))]


def test_visitors_take_turns():
    """Somebody who asks for many things waits for them himself; the others do not."""
    lane = FairQueue()
    for number in range(5):
        lane.put(f"a{number}", "anna")
    lane.put("b0", "ben")
    lane.put("c0", "carl")
    lane.put("b1", "ben")

    assert ["a0", "b0", "c0", "a1", "b1", "a2", "a3", "a4"] == drained(lane)


def test_a_task_of_two_comes_up_at_the_earlier_turn_and_once():
    """Whoever joins a task that waits far back moves it to the front of his own row."""
    lane = FairQueue()
    for number in range(4):
        lane.put(f"a{number}", "anna")
    lane.join("a3", "ben")
    lane.join("a3", "ben")
    lane.join("never there", "ben")

    assert ["a0", "a3", "a1", "a2"] == drained(lane)


def test_a_removed_task_does_not_come_up():
    """It leaves no gap, and can be told from one that was not there."""
    lane = FairQueue()
    for number in range(3):
        lane.put(number, "anna")

    assert lane.remove(1)
    assert not lane.remove(1)
    assert [0, 2] == drained(lane)


def test_whoever_comes_while_another_is_served_is_next():
    """Also where the other has more that waits: he has just had his turn."""
    lane = FairQueue()
    for number in range(100):
        lane.put(f"a{number}", "anna")
    assert ["a0", "a1"] == [lane.get(), lane.get()]
    lane.put("b0", "ben")

    assert ["b0", "a2"] == [lane.get(), lane.get()]


def test_a_task_that_goes_on_later_lets_others_in_between():
    """It is put again when its turn is over, and stands behind whoever waits by then."""
    lane, came = FairQueue(), []
    lane.put("long", "anna")
    lane.put("b0", "ben")
    lane.put("c0", "carl")
    for _ in range(4):
        came.append(lane.get())
        if came[-1] == "long":
            lane.put("long", "anna")

    assert ["long", "b0", "c0", "long"] == came


def test_whoever_leaves_a_task_lends_it_no_turn():
    """It waits in the other's row alone, where it stood."""
    lane = FairQueue()
    lane.put("a0", "anna")
    lane.put("a1", "anna")
    lane.join("a1", "ben")
    lane.put("b1", "ben")
    lane.leave("a1", "ben")
    lane.leave("a1", "carl")

    assert ["a0", "b1", "a1"] == drained(lane)


@given(
    st.lists(
        st.one_of(st.tuples(st.just("put"), st.integers(0, 4)), st.tuples(st.just("get"))),
        max_size=60,
    )
)
def test_between_two_turns_of_one_everybody_who_waited_has_one(steps):
    """Whenever tasks come: nobody is served twice while another waits all the time."""
    lane, waiting, passed, number = FairQueue(), {}, {}, 0
    for step in steps:
        if step[0] == "put":
            number += 1
            lane.put((step[1], number), str(step[1]))
            waiting.setdefault(step[1], []).append(number)
        elif len(lane):
            visitor, first = lane.get()
            assert first == waiting[visitor].pop(0)
            passed.pop(visitor, None)
            for other in (each for each, row in waiting.items() if row and each != visitor):
                passed.setdefault(other, []).append(visitor)
                assert len(set(passed[other])) == len(passed[other])


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_nothing_is_lost_and_nobody_waits_for_two_of_another(asked):
    """Each task comes up once; between two of one visitor every waiting visitor has a turn."""
    lane, rows = FairQueue(), {}
    for number, (visitor, _) in enumerate(asked):
        lane.put((visitor, number), str(visitor))
        rows.setdefault(visitor, []).append((visitor, number))

    came = drained(lane)

    assert sorted(came) == sorted(task for row in rows.values() for task in row)
    for visitor, row in rows.items():
        assert row == [task for task in came if task[0] == visitor]
        for other, others in rows.items():
            turns = [task[0] for task in came if task[0] in (visitor, other)]
            both = 2 * min(len(row), len(others))
            if other != visitor:
                assert abs(turns[:both].count(visitor) - turns[:both].count(other)) <= 1


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
        report = self._reporter(task)
        report(0, 9, "Reading")
        self._cancel(task.key)
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
            if 100 == len(worker._models if passes else worker._sums):
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

    monkeypatch.setattr(Worker, "_start", lambda self, report: None)
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
            if 2 == len(worker._models):
                break
            threading.Event().wait(0.05)
        together.set()

    worker.serve(lines())

    assert done.wait(30)
    shorts = [("experiment", f"text {number}") for number in (1, 2)]
    assert [("batch", 0), *shorts, ("batch", 1), ("batch", 2)] == came
    assert 1 == len(threads)


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

    monkeypatch.setattr(Worker, "_start", lambda self, report: None)
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
            if 2 == len(worker._models):
                break
            threading.Event().wait(0.05)
        go_on.set()

    worker.serve(lines())

    assert done.wait(30)
    assert [("pass", 0), ("pass", 1)] == [each for each in came if each[0] == "pass"]
