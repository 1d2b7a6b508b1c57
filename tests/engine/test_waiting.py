"""How tasks wait: in turn by visitor, and never past the end of their lane."""

import io
import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.common.specs import CorpusSpec, ModelSpec, Request, RunSpec
from poskernel_core.engine import worker as worker_module
from poskernel_core.engine.lanes import Lane
from poskernel_core.engine.worker import Worker
from poskernel_core.storage.store import Store


def drained(lane):
    """The tasks of a lane in the order in which they come up."""
    return [lane.get() for _ in range(len(lane))]


def test_visitors_take_turns():
    """Somebody who asks for many things waits for them himself; the others do not."""
    lane = Lane()
    for number in range(5):
        lane.put(f"a{number}", "anna")
    lane.put("b0", "ben")
    lane.put("c0", "carl")
    lane.put("b1", "ben")

    assert ["a0", "b0", "c0", "a1", "b1", "a2", "a3", "a4"] == drained(lane)


def test_a_task_of_two_comes_up_at_the_earlier_turn_and_once():
    """Whoever joins a task that waits far back moves it to the front of his own row."""
    lane = Lane()
    for number in range(4):
        lane.put(f"a{number}", "anna")
    lane.join("a3", "ben")
    lane.join("a3", "ben")
    lane.join("never there", "ben")

    assert ["a0", "a3", "a1", "a2"] == drained(lane)


def test_a_removed_task_does_not_come_up():
    """It leaves no gap, and can be told from one that was not there."""
    lane = Lane()
    for number in range(3):
        lane.put(number, "anna")

    assert lane.remove(1)
    assert not lane.remove(1)
    assert [0, 2] == drained(lane)


def test_whoever_comes_while_another_is_served_is_next():
    """Also where the other has more that waits: he has just had his turn."""
    lane = Lane()
    for number in range(100):
        lane.put(f"a{number}", "anna")
    assert ["a0", "a1"] == [lane.get(), lane.get()]
    lane.put("b0", "ben")

    assert ["b0", "a2"] == [lane.get(), lane.get()]


def test_a_task_that_goes_on_later_lets_others_in_between():
    """It is put again when its turn is over, and stands behind whoever waits by then."""
    lane, came = Lane(), []
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
    lane = Lane()
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
    lane, waiting, passed, number = Lane(), {}, {}, 0
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
    lane, rows = Lane(), {}
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


def message(number, visitor=""):
    """A request as the engine sends it."""
    run = RunSpec(
        model=ModelSpec(name="m", fingerprint="f"),
        corpus=CorpusSpec(fingerprint="c"),
        context=7,
        windows=1,
        positions=(3,),
        seed=number,
    )
    request = Request(analysis="etc", run=run)
    return {
        "key": request.key,
        "request": request.model_dump(mode="json"),
        "execution": {},
        "client": visitor,
    }


def said(events):
    """All events so far."""
    return [json.loads(line) for line in events.getvalue().splitlines()]


def test_a_computation_heeds_that_it_was_cancelled(tmp_path, events, monkeypatch):
    """It ends at its next report."""
    ended = threading.Event()

    def analyse(self, task):
        report = self._reporter(task)
        report(0, 9, "Reading")
        self._cancel(task.key)
        report(1, 9, "Reading")
        return True

    monkeypatch.setattr(Worker, "_analyse", analyse)
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
def test_nothing_ends_a_lane(tmp_path, events, monkeypatch, error):
    """Whatever is raised, and be the log full: the job ends, and the lane takes the next one."""
    monkeypatch.setattr(worker_module.sys, "stderr", _Broken())
    done, calls = threading.Event(), []

    def step(self, task):
        calls.append(task)
        if len(calls) == 1:
            raise error("broken")
        done.set()
        return True

    monkeypatch.setattr(Worker, "_analyse", step)
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


@pytest.mark.parametrize("lane", ["_analyse", "_pass", "_experiment"])
def test_a_hundred_requests_of_one_delay_another_by_the_one_under_way(
    tmp_path, events, monkeypatch, lane
):
    """In every lane of the worker: the single request of a second visitor is the next."""
    lanes = {"_pass": "_passes", "_experiment": "_experiments"}
    began, go_on, came = threading.Event(), threading.Event(), []
    done = threading.Event()

    def step(self, task):
        came.append(task.request.run.seed)
        if len(came) == 1:
            began.set()
            assert go_on.wait(30)
        if len(came) == 101:
            done.set()
        return True

    def first(self, task):
        return self._queue(getattr(self, lanes[lane]), task)

    if lane in lanes:
        monkeypatch.setattr(Worker, "_analyse", first)
    monkeypatch.setattr(Worker, lane, step)
    worker = Worker(Store(tmp_path), events)

    def lines():
        for number in range(100):
            yield json.dumps(message(number, "anna"))
        assert began.wait(30)
        yield json.dumps(message(777, "ben"))
        held = worker._analyses if lane == "_analyse" else getattr(worker, lanes[lane])
        for _ in range(600):
            if 100 == len(held):
                break
            threading.Event().wait(0.05)
        go_on.set()

    worker.serve(lines())

    assert done.wait(30)
    assert [0, 777, 1] == came[:3]
    assert {*range(100), 777} == set(came)


def test_a_composition_lets_others_in_between_its_parts(tmp_path, events, monkeypatch):
    """One that takes twenty passes holds another visitor's single one up for one of them."""
    came, begun, together = [], threading.Event(), threading.Event()

    class Asked:
        composition = object()

    def compute_part(shared, asked, first, execution, report):
        if first == 0:
            begun.set()
            assert together.wait(30)
        came.append(("part", first))
        return first + 1 if first < 19 else None

    def analyse(self, task):
        return self._queue(self._passes, task)

    def a_pass(self, task):
        if task.request.run.seed == 0:
            task.asked = Asked
            return real(self, task)
        came.append(("single", task.request.run.seed))
        return True

    real = Worker._pass
    monkeypatch.setattr(Worker, "_start", lambda self, report: None)
    monkeypatch.setattr(Worker, "_analyse", analyse)
    monkeypatch.setattr(Worker, "_pass", a_pass)
    monkeypatch.setattr(worker_module.execute, "compute_part", compute_part)
    worker = Worker(Store(tmp_path), events)

    def lines():
        yield json.dumps(message(0, "anna"))
        assert begun.wait(30)
        yield json.dumps(message(1, "ben"))
        for _ in range(600):
            if 1 == len(worker._passes):
                break
            threading.Event().wait(0.05)
        together.set()

    worker.serve(lines())
    for _ in range(600):
        if 2 == sum(event["state"] == "done" for event in said(events)):
            break
        threading.Event().wait(0.05)

    assert [("part", 0), ("single", 1), ("part", 1)] == came[:3]
    assert [number for kind, number in came if kind == "part"] == list(range(20))
