"""The engine's worker process, and the jobs that it works on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poskernel_core.common.errors import ComputeFailed
from poskernel_core.engine.job import Job
from poskernel_core.engine.process import Child, Event

BROKEN = {
    "state": "error",
    "error": ComputeFailed.__name__,
    "message": "The compute process stopped before it was done (out of memory, or killed): ask "
    "again, it goes on where it stopped.",
}


class WorkerLink(Child):
    """A running worker process: sends messages to it and applies its events to the jobs.

    Raises:
        ComputeFailed: the process could not be started.
    """

    def __init__(self, store: Path, log: Path) -> None:
        self._jobs: dict[str, Job] = {}
        super().__init__("worker", store, log, self._hear)

    def send(self, message: Mapping[str, Any], *jobs: Job) -> None:
        """Send a message about jobs; if the process is gone, they end with an error."""
        open_jobs = {key: other for key, other in self._jobs.items() if not other.ended}
        self._jobs = open_jobs | {job.key: job for job in jobs}
        if not self.tell(message):
            for job in jobs:
                job.take(BROKEN)

    def _hear(self, event: Event | None) -> None:
        """Apply an event to its job; the end of the process is an error of all open jobs."""
        for key, job in list(self._jobs.items()):
            if event is None or event["key"] == key:
                job.take(event or BROKEN)
