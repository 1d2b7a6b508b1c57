"""Compute shards on several devices of one machine, with one process per device.

The process is this module too: it takes shards and tells their progress, the sums go through the
store. Its argument is the directory of the store.
"""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from poskernel_core.common.errors import ComputeFailed
from poskernel_core.common.progress import Report
from poskernel_core.common.shards import ShardTask
from poskernel_core.engine.distributed.shards import Attempts, final_event
from poskernel_core.engine.process import Child, Event, events_only, reporter, say
from poskernel_core.storage.store import Store


def run_on_devices(
    devices: Sequence[str], tasks: Sequence[ShardTask], store: Store, report: Report
) -> None:
    """Compute shards on several devices in parallel; a process that dies is restarted."""
    attempts = Attempts(tasks)
    workers = [_Device(name, store, attempts) for name in devices]
    try:
        attempts.run([worker.go_on for worker in workers], report)
    finally:
        for worker in workers:
            worker.close()


class _Device:
    def __init__(self, name: str, store: Store, attempts: Attempts) -> None:
        self._name, self._store, self._attempts = name, store, attempts
        self._child: Child | None = None
        self._number: int | None = None

    def close(self) -> int | None:
        """Stop the process, if there is one, and return its exit code."""
        child, self._child = self._child, None
        return None if child is None else child.close()

    def go_on(self) -> None:
        """Begin the next shard if none is under way; a process that died is replaced."""
        if self._child is not None and not self._child.alive:
            code = self.close()
            self._fail(f"its process on {self._name} ended with code {code}, see worker.log")
        if self._number is None and (number := self._attempts.take()) is not None:
            self._number, task = number, self._attempts.tasks[number]
            execution = task.execution.model_copy(update={"device": self._name})
            try:
                self._child = self._child or Child("distributed.devices", self._store, self._hear)
            except ComputeFailed as error:
                self._fail(str(error))
            else:
                sent = task.model_copy(update={"execution": execution})
                self._child.tell(sent.model_dump(mode="json"))

    def _fail(self, why: str) -> None:
        self._hear({"state": "error", "again": True, "message": why})

    def _hear(self, event: Event | None) -> None:
        """Record an event of the shard under way; the end of the process is noticed elsewhere."""
        number = self._number
        if number is not None and event is not None:
            if event["state"] != "running":
                self._number = None
            self._attempts.tell(number, event)


if __name__ == "__main__":
    tell = partial(say, events_only())
    for line in sys.stdin:
        tell(final_event(line, reporter(tell, lambda: False), Path(sys.argv[1])))
