"""What memory is free, by the machine and its control groups; what nobody holds goes back."""

import ctypes
import io
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace

import psutil
import pytest

from poskernel_core.engine import worker as worker_module
from poskernel_core.engine.process import Child
from poskernel_core.forward.memory import free_memory
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


GROUPS = {
    # version: line of /proc/self/cgroup, place, names of bound, use and counters, what is no bound
    2: ("0::/a/b", "", "memory.max", "memory.current", "", "max"),
    1: ("4:cpu,memory:/a/b", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_",
        str(2**63 - 4096)),
}  # fmt: skip


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of 900 free bytes whose control groups are made by a call."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=900))

    def make(version, **groups):
        line, mount, bound, taken, prefix, none = GROUPS[version]
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(f"9:pids:/elsewhere\n{line}\n")
        for name, (most, used, files) in groups.items():
            folder = tmp_path / "sys/fs/cgroup" / mount / {"top": "", "a": "a", "b": "a/b"}[name]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / bound).write_text(f"{most or none}\n")
            (folder / taken).write_text(f"{used}\n")
            stat = f"anon 7\n{prefix}active_file {files}\n{prefix}inactive_file 1\n"
            (folder / "memory.stat").write_text(stat)
        return tmp_path

    return make


CASES = {
    # what the groups say (None: no bound), and the bytes that are free of the machine's 900
    "the group of the process": ({"b": (500, 300, 20)}, 500 - 300 + 20 + 1),
    "the least counts": ({"top": (None, 1, 0), "a": (400, 350, 0), "b": (500, 100, 0)}, 51),
    "the path of a host": ({"top": (500, 300, 0)}, 201),
    "more than the machine has": ({"b": (10**12, 0, 0)}, 900),
    "nothing is left": ({"b": (100, 300, 0)}, 0),
}


@pytest.mark.parametrize("version", GROUPS)
@pytest.mark.parametrize("case", CASES)
def test_bounds_of_groups(machine, version, case):
    groups, expected = CASES[case]
    assert expected == free_memory(machine(version, **groups))


def test_a_group_that_does_not_count_files(machine):
    root = machine(2, b=(500, 300, 20))
    (root / "sys/fs/cgroup/a/b/memory.stat").unlink()
    assert 200 == free_memory(root)


def test_no_groups(machine, tmp_path):
    assert 900 == free_memory(tmp_path)
