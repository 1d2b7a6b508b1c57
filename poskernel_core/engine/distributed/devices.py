"""Compute shards on several devices of one machine, with one process per device."""

import contextlib
import json
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from poskernel_core.common.progress import Report
from poskernel_core.common.shards import ShardTask
from poskernel_core.engine.distributed.attempts import Attempts
from poskernel_core.engine.worker_client import open_log, start_module
from poskernel_core.storage.store import Store

LOOK_EVERY = 0.2


def run_on_devices(
    devices: Sequence[str], tasks: Sequence[ShardTask], store: Store, report: Report
) -> None:
    """Compute shards on several devices in parallel; a process that dies is restarted.

    Raises:
        BadRequest: a shard cannot be computed at all.
        Cancelled: raised by ``report``; the shards' progress is kept.
        ComputeFailed: a shard failed in every attempt; the message names the shard.
    """
    attempts = Attempts(tasks)
    hands = [
        _DeviceWorker(device, tasks, store.directory.resolve(), attempts) for device in devices
    ]
    try:
        while not attempts.wait(LOOK_EVERY):
            report(*attempts.progress())
    finally:
        attempts.stop()
        for hand in hands:
            hand.close()
    if attempts.error is not None:
        raise attempts.error


class _DeviceWorker:
    """A device: a thread that takes tasks from the queue, and the process that computes them."""

    def __init__(
        self, device: str, tasks: Sequence[ShardTask], store: Path, attempts: Attempts
    ) -> None:
        self._device, self._tasks, self._store = device, tasks, store
        self._attempts = attempts
        self._process: subprocess.Popen[str] | None = None
        self._starting = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the process and the thread."""
        with self._starting:
            self._closed = True
            if self._process is not None:
                self._process.terminate()
        self._thread.join()

    def _work(self) -> None:
        with open_log(self._store / "worker.log") as log:
            while (number := self._attempts.take()) is not None:
                try:
                    process = self._alive(log)
                    if process is None:
                        break
                    self._compute(number, process)
                except Exception as error:  # reported to the thread that waits for the shard
                    event = {"state": "error", "again": True, "message": str(error)}
                    self._attempts.tell(number, event)
        with self._starting:
            if self._process is not None:
                _end(self._process)

    def _alive(self, log: TextIO) -> subprocess.Popen[str] | None:
        """Return the running process, starting it if needed; None after :meth:`close`."""
        with self._starting:
            if self._closed:
                return None
            if self._process is None or self._process.poll() is not None:
                if self._process is not None:
                    _end(self._process)
                self._process = start_module("distributed.shard_worker", self._store, log)
            return self._process

    def _compute(self, number: int, process: subprocess.Popen[str]) -> None:
        """Send a task to the process and record its events until the task or the process ends."""
        task = self._tasks[number]
        execution = task.execution.model_copy(update={"device": self._device})
        sent = task.model_copy(update={"execution": execution}).model_dump_json()
        event: dict[str, Any] = {"state": "none"}
        with contextlib.suppress(OSError, ValueError):
            print(sent, file=process.stdin, flush=True)
            for line in process.stdout or ():
                event = json.loads(line)
                if event["state"] != "running":
                    break
                self._attempts.tell(number, event)
        if event["state"] not in ("done", "error"):
            process.kill()
            code = process.wait()
            why = f"its process on {self._device} ended with code {code}, see worker.log"
            event = {"state": "error", "again": True, "message": why}
        self._attempts.tell(number, event)


def _end(process: subprocess.Popen[str]) -> None:
    """Stop a process and close the pipes to it."""
    process.terminate()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
