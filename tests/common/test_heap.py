"""Memory that nobody holds goes back to the system: the C library's heap, and the worker's."""

import ctypes
import io
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from poskernel_core.common import heap
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.specs import Request
from poskernel_core.engine import worker as worker_module
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.plan import make_plan
from poskernel_core.engine.process import Child
from poskernel_core.engine.worker import Worker
from poskernel_core.storage.store import Store
from tests.support import ROOT

HOLES = """
import psutil
from poskernel_core.common import heap
process = psutil.Process()
blocks = [bytearray(60_000) for _ in range(2_000)]
for block in blocks:
    block[:] = bytes([1]) * len(block)
full = process.memory_info().rss
blocks = blocks[::50]
holes = process.memory_info().rss
print(heap.give_back(), full - holes, holes - process.memory_info().rss)
"""
glibc = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"),
    reason="the C library is not glibc",
)


@glibc
def test_holes_go_back():
    """2,000 blocks of 60 kB, of which 40 stay: the other 118 MB stay with glibc, then go."""
    done = subprocess.run(
        [sys.executable, "-c", HOLES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    gave, before, after = done.stdout.split()
    assert "True" == gave
    assert int(before) < 20e6
    assert int(after) > 90e6


def test_where_the_library_cannot(monkeypatch):
    monkeypatch.setattr(heap.ctypes, "CDLL", lambda _: object())
    assert not heap.give_back()


def test_the_worker_gives_back_after_a_burst(tmp_path, monkeypatch):
    gave, ended, times = threading.Event(), threading.Event(), []

    def give_back():
        times.append(1)
        gave.set()

    def sleep(seconds):
        assert worker_module.TIDY_AFTER == seconds
        assert ended.wait(30)

    def asked(seed):
        run = describe_run("demo-gpt2", windows=50).model_copy(update={"seed": seed})
        plan = make_plan(Request(analysis="etc", run=run))
        task = {"key": plan.key, "plan": plan.as_json(), "execution": {}, "client": ""}
        return json.dumps({"tasks": [task]})

    def refuse(*_):
        raise BadRequest("No.")

    def until_said(number):
        for _ in range(600):
            if events.getvalue().count('"error"') >= number:
                return
            threading.Event().wait(0.05)
        raise AssertionError("waited in vain")

    def lines():
        assert not gave.wait(0.3)
        yield from (asked(seed) for seed in range(7))
        until_said(7)
        assert [] == times
        ended.set()
        assert gave.wait(30)
        threading.Event().wait(0.3)
        burst = len(times)
        assert burst in {1, 2}  # the last may have been told just before it ended
        gave.clear()
        yield asked(7)
        assert gave.wait(30)
        threading.Event().wait(0.3)
        assert burst + 1 == len(times)

    events = io.StringIO()
    clock = SimpleNamespace(sleep=sleep, monotonic=time.monotonic)
    monkeypatch.setattr(worker_module, "time", clock)
    monkeypatch.setattr(worker_module.heap, "give_back", give_back)
    monkeypatch.setattr(worker_module.execute, "compute", refuse)
    Worker(Store(tmp_path), events).serve(lines())


@glibc
@pytest.mark.parametrize(("given", "heaps"), [(None, "2"), ("5", "5")])
def test_a_worker_has_few_heaps(tmp_path, monkeypatch, given, heaps):
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    if given:
        monkeypatch.setenv("MALLOC_ARENA_MAX", given)
    child = Child("worker", Store(tmp_path), lambda event: None)
    place, patience = Path(f"/proc/{child.pid}/environ"), time.monotonic() + 30
    while not (environment := place.read_bytes()) and time.monotonic() < patience:
        time.sleep(0.01)  # the system fills it in a moment after the start
    child.close()
    assert [f"MALLOC_ARENA_MAX={heaps}".encode()] == [
        each for each in environment.split(b"\0") if each.startswith(b"MALLOC_ARENA_MAX=")
    ]
