"""The parent's end of a worker process: its pipe and its jobs."""

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from poskernel_core.common.errors import ComputeFailed
from poskernel_core.common.modules import command, environment
from poskernel_core.engine.job import Job

MAX_LOG = 10_000_000
HEAP = {"MALLOC_ARENA_MAX": "2"}
"""Environment variable that limits the number of glibc heaps, to reduce fragmentation. The default
is eight per core, more than needed: the worker's threads rarely allocate at the same time."""


def start_module(name: str, store: Path, log: TextIO) -> subprocess.Popen[str]:
    """Start a module of this package as a separate process that reads and writes lines.

    Args:
        name: the module.
        store: the directory of the process's store.
        log: receives its standard error.

    Raises:
        ComputeFailed: the process could not be started.
    """
    try:
        return subprocess.Popen(
            command(f"poskernel_core.engine.{name}", str(store)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            encoding="utf-8",
            start_new_session=True,
            env=HEAP | environment(),
        )
    except OSError as error:
        raise ComputeFailed(
            f"The compute process could not be started ({error.strerror}): ask again when the "
            "machine is less busy."
        ) from error


class WorkerLink:
    """A running worker process: sends messages to it and applies its events to the jobs.

    Raises:
        ComputeFailed: the process could not be started.
    """

    def __init__(self, store: Path, log: Path) -> None:
        self._jobs: dict[str, Job] = {}
        self._over = False
        with open_log(log) as stream:
            self._process = start_module("worker", store, stream)
        events = self._process.stdout
        self._listener = threading.Thread(target=self._listen, args=(events,), daemon=True)
        self._listener.start()

    @property
    def alive(self) -> bool:
        """Whether the process runs and its events are still being read."""
        return self._process.poll() is None and not self._over

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    def send(self, message: Mapping[str, Any], *jobs: Job) -> None:
        """Send a message about jobs; if the process is gone, they end with an error."""
        open_jobs = {key: other for key, other in self._jobs.items() if not other.ended}
        self._jobs = open_jobs | {job.key: job for job in jobs}
        failed = False
        try:
            print(json.dumps(message), file=self._process.stdin, flush=True)
        except OSError:
            failed = True
        if failed or self._over:  # the process ended while the message was on its way
            for job in jobs:
                job.take(self._broken())

    def close(self) -> None:
        """Stop the process; its open jobs end with an error."""
        self._process.terminate()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _listen(self, events: Iterable[str]) -> None:
        try:
            for line in events:
                event = json.loads(line)
                job = self._jobs.get(event["key"])
                if job is not None and not job.ended:
                    job.take(event)
        finally:
            self._over = True
            for job in list(self._jobs.values()):
                if not job.ended:
                    job.take(self._broken())

    def _broken(self) -> dict[str, str]:
        return {
            "state": "error",
            "error": ComputeFailed.__name__,
            "message": "The compute process stopped before it was done (out of memory, or "
            "killed): ask again, it goes on where it stopped.",
        }


def open_log(log: Path) -> TextIO:
    """Open the worker's log, truncating it if it is too long; the null device if that fails."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        too_long = log.is_file() and log.stat().st_size > MAX_LOG
        return open(log, "w" if too_long else "a", encoding="utf-8")
    except OSError:
        return open(os.devnull, "w", encoding="utf-8")
