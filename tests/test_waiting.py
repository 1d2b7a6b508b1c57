"""How tasks wait: in turn by visitor, within bounds, and never past the end of their lane."""

import io
import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poskernel_core.common.errors import Busy
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
    lane = Lane(99, 99)
    for number in range(5):
        lane.put(f"a{number}", "anna")
    lane.put("b0", "ben")
    lane.put("c0", "carl")
    lane.put("b1", "ben")

    assert ["a0", "b0", "c0", "a1", "b1", "a2", "a3", "a4"] == drained(lane)


def test_a_task_of_two_comes_up_at_the_earlier_turn_and_once():
    """Whoever joins a task that waits far back moves it to the front of his own row."""
    lane = Lane(99, 99)
    for number in range(4):
        lane.put(f"a{number}", "anna")
    lane.join("a3", "ben")
    lane.join("a3", "ben")
    lane.join("never there", "ben")

    assert ["a0", "a3", "a1", "a2"] == drained(lane)


def test_a_removed_task_does_not_come_up():
    """It leaves no gap, and can be told from one that was not there."""
    lane = Lane(99, 99)
    for number in range(3):
        lane.put(number, "anna")

    assert lane.remove(1)
    assert not lane.remove(1)
    assert [0, 2] == drained(lane)


def test_bounds():
    """One visitor has a bound of his own, all have one together, a program has only that."""
    lane = Lane(5, 2)
    lane.put("a0", "anna")
    lane.put("a1", "anna")
    with pytest.raises(Busy, match="2 of your computations"):
        lane.put("a2", "anna")
    lane.put("b0", "ben")
    lane.put("x0", "")
    lane.put("x1", "")
    with pytest.raises(Busy, match="5 computations are waiting"):
        lane.put("x2", "")
    assert "a0" == lane.get()
    lane.put("a2", "anna")


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_nothing_is_lost_and_nobody_waits_for_two_of_another(asked):
    """Each task comes up once; between two of one visitor every waiting visitor has a turn."""
    lane, rows = Lane(999, 999), {}
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
    return {
        "request": Request(analysis="etc", run=run).model_dump(mode="json"),
        "execution": {},
        "visitor": visitor,
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


def test_a_full_lane_is_told_and_quick_work_goes_on(tmp_path, events, monkeypatch):
    """Many passes of one visitor are refused above the bound; others are still answered."""
    monkeypatch.setitem(worker_module.MOST_WAITING, "passes", (9, 3))
    hold, quick = threading.Event(), threading.Event()

    def analyse(self, task):
        if task.request.run.seed < 100:
            return self._queue(self._passes, task)
        quick.set()
        return True

    monkeypatch.setattr(Worker, "_analyse", analyse)
    monkeypatch.setattr(Worker, "_pass", lambda self, task: hold.wait(30))
    worker = Worker(Store(tmp_path), events)
    lines = [json.dumps(message(number, "anna")) for number in range(48)]
    worker.serve([*lines, json.dumps(message(100, "ben"))])

    assert quick.wait(10)
    refused = [event for event in said(events) if event.get("error") == "Busy"]
    assert 44 <= len(refused) <= 45  # one may be under way already
    assert "of your computations are waiting" in refused[0]["message"]
    hold.set()
