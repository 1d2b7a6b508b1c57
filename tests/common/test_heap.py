"""Memory that nobody holds goes back to the system: the C library's heap, and the worker's."""

import ctypes
import io
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from poskernel_core.engine import worker as worker_module
from poskernel_core.engine.process import Child
from poskernel_core.storage.store import Store
from tests.support import ROOT

HOLES = """
import psutil
from poskernel_core.engine.worker import give_back
rss = lambda: psutil.Process().memory_info().rss
blocks = [bytearray(b"1" * 60_000) for _ in range(2_000)]
full = rss()
blocks = blocks[::50]
holes = rss()
give_back()
print(full - holes, holes - rss())
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
    before, after = map(int, done.stdout.split())
    assert before < 20e6
    assert after > 90e6


def test_where_the_library_cannot(monkeypatch):
    monkeypatch.setattr(worker_module.ctypes, "CDLL", lambda _: object())
    worker_module.give_back()


def test_the_worker_gives_back_after_each_step(tmp_path, monkeypatch):
    gave, steps = threading.Semaphore(0), SimpleQueue()
    monkeypatch.setattr(worker_module, "give_back", gave.release)
    worker = worker_module.Worker(Store(tmp_path), io.StringIO())
    worker._queue = SimpleNamespace(get=lambda on_device: steps.get())  # noqa: SLF001
    worker._attempt = lambda task: None  # noqa: SLF001

    def lines():
        assert not gave.acquire(timeout=0.1)
        for number in range(7):
            steps.put(number)
            assert gave.acquire(timeout=30)
        yield from ()

    worker.serve(lines())


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
    assert f"MALLOC_ARENA_MAX={heaps}".encode() in environment.split(b"\0")
