"""A process that takes messages and tells events as JSON lines: its parent's end, and its own."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from io import TextIOBase
from pathlib import Path
from typing import Any, TextIO

from poskernel_core.common.errors import Cancelled, ComputeFailed
from poskernel_core.common.modules import command, environment
from poskernel_core.common.progress import Report
from poskernel_core.common.settings import variable
from poskernel_core.models.attached import LAB, in_hand
from poskernel_core.storage.store import Store

Event = Mapping[str, Any]
Hear = Callable[[Event | None], None]
LOG, MAX_LOG = "worker.log", 10_000_000
REPORT_EVERY = 0.1
SPEAKING = threading.Lock()
HEAP = {"MALLOC_ARENA_MAX": "2"}
"""Environment variable that limits the number of glibc heaps, to reduce fragmentation. The default
is eight per core, more than needed: the threads of a child rarely allocate at the same time."""


class Child:
    """A running module of ``poskernel_core.engine``.

    Args:
        module: its name, or a socket to what works in a process that others started.
        store: its store, of the same size; the store's ``worker.log`` receives its standard error.
        hear: called by another thread with each event, and once with None when there are no more.
    """

    def __init__(self, module: str | socket.socket, store: Store, hear: Hear) -> None:
        self._process: Any = _started(module, store) if isinstance(module, str) else _Line(module)
        self._over = False
        self._listener = threading.Thread(target=self._listen, args=(hear,), daemon=True)
        self._listener.start()

    @property
    def alive(self) -> bool:
        """Whether the process runs and its events are still being read."""
        return self._process.poll() is None and not self._over

    @property
    def pid(self) -> int:
        """Its process id."""
        return int(self._process.pid)

    def tell(self, message: Event) -> bool:
        """Send a message; return False if the process ended before or meanwhile.

        For one thread at a time.
        """
        with contextlib.suppress(OSError, ValueError):
            print(json.dumps(message), file=self._process.stdin, flush=True)
            return not self._over
        return False

    def close(self) -> int:
        """Stop the process and return its exit code, after its last event was heard."""
        self._process.terminate()
        code = int(self._process.wait())
        self._listener.join()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        return code

    def _listen(self, hear: Hear) -> None:
        try:
            with self._process.stdout as events:  # which no other thread closes
                for line in events:
                    if line.endswith("\n"):  # else it was cut off when the process was killed
                        hear(json.loads(line))
        finally:
            self._over = True
            hear(None)


def start_in_lab() -> Callable[[Store, Hear], Child] | None:
    """Return what starts an engine's child in the notebook that serves its model; None elsewhere.

    When the notebook is interrupted, a worker process follows, which cannot run that model.
    """
    number = os.environ.pop(LAB, "").split()[:1]
    lines = [socket.socket(fileno=int(descriptor)) for descriptor in number]

    def start(store: Store, hear: Hear) -> Child:
        def relay(event: Event | None) -> None:
            if event is None:
                in_hand.clear()
            hear(event)

        return Child(lines.pop(), store, relay) if lines else Child("worker", store, hear)

    return start if lines else None


class _Line:
    """The socket to a notebook's process, in place of a process of our own."""

    pid = os.getpid()

    def __init__(self, line: socket.socket) -> None:
        self.stdin = line.makefile("w", encoding="utf-8")
        self.stdout = line.makefile("r", encoding="utf-8")
        self._line = line

    def poll(self) -> None:
        """It runs, as far as we know."""

    def terminate(self) -> None:
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)

    def wait(self) -> int:
        self._line.close()
        return 0


def _started(module: str, store: Store) -> subprocess.Popen[str]:
    directory = store.directory.resolve()
    size = {variable("cache_gb"): repr(store.limit / 2**30)}
    try:
        with _open_log(directory / LOG) as stream:
            return subprocess.Popen(
                command(f"poskernel_core.engine.{module}", str(directory)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                encoding="utf-8",
                start_new_session=True,
                env=HEAP | environment() | size,
            )
    except OSError as error:
        raise ComputeFailed(
            f"The compute process could not be started ({error.strerror}): ask again when the "
            "machine is less busy."
        ) from error


def _open_log(log: Path) -> TextIO:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        too_long = log.is_file() and log.stat().st_size > MAX_LOG
        return open(log, "w" if too_long else "a", encoding="utf-8")
    except OSError:
        return open(os.devnull, "w", encoding="utf-8")


def events_only() -> TextIOBase:
    """Return this process's standard output; anything else written there goes to standard error."""
    events = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return events


def say(output: TextIOBase, event: Event) -> None:
    """Write an event as a JSON line; any thread may call it."""
    line = json.dumps(event)
    # If the parent is gone, writing fails; the input then ends too, and so does this process.
    with SPEAKING, contextlib.suppress(OSError, ValueError):
        print(line, file=output, flush=True)


def reporter(tell: Callable[[Event], object], cancelled: Callable[[], bool]) -> Report:
    """Return a report that tells the first and last step, and at most ten others a second.

    The report raises Cancelled once ``cancelled`` is true.
    """
    last = 0.0

    def report(done: int, total: int, note: str) -> None:
        nonlocal last
        if cancelled():
            raise Cancelled("The computation was cancelled.")
        now = time.monotonic()
        if now - last >= REPORT_EVERY or done in (0, total):
            last = now
            tell({"state": "running", "done": done, "total": total, "note": note})

    return report
