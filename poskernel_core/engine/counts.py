"""What an engine has done since it was made, in numbers, for whoever runs a server."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from poskernel_core.engine.job import Job

__all__ = ["ENDINGS", "KINDS", "STATES", "Counts", "Tally", "kind_of", "open_by_kind"]

KINDS = ("analysis", "experiment", "composition")
"""Of jobs: an analysis of statistics, which a pass gathers where they are missing; an experiment,
which runs the model itself; what several of these make together."""

STATES = ("queued", "running")
ENDINGS = ("done", "error", "cancelled")


@dataclass(frozen=True)
class Tally:
    """Jobs that have ended one way: how many, and the seconds from question to end of them all."""

    jobs: int = 0
    seconds: float = 0.0


class Counts:
    """Counted from any thread.

    Attributes:
        hits: how often a result was asked for that was there.
        misses: how often one was asked for that was not.
        worker_starts: how often a worker process was started.
    """

    def __init__(self) -> None:
        self.hits = 0
        self.misses = 0
        self.worker_starts = 0
        self._ended = {(kind, how): Tally() for kind in KINDS for how in ENDINGS}
        self._lock = threading.Lock()

    def looked(self, found: bool) -> None:
        """Count that a result was asked for."""
        with self._lock:
            self.hits += found
            self.misses += not found

    def started_worker(self) -> None:
        """Count that a worker process was started."""
        with self._lock:
            self.worker_starts += 1

    def ended(self, job: Job) -> None:
        """Count a job that has just ended."""
        ending, seconds = (kind_of(job), job.state), time.monotonic() - job.began
        with self._lock:
            was = self._ended[ending]
            self._ended[ending] = Tally(was.jobs + 1, was.seconds + seconds)

    @property
    def tallies(self) -> dict[tuple[str, str], Tally]:
        """The jobs that have ended, by kind and by how: ``done``, ``error`` or ``cancelled``."""
        with self._lock:
            return dict(self._ended)


def kind_of(job: Job) -> str:
    """Return which of the kinds a job is."""
    if job.request.composition is not None:
        return "composition"
    return "analysis" if job.request.experiment is None else "experiment"


def open_by_kind(jobs: Iterable[Job]) -> Counter[tuple[str, str]]:
    """Return how many jobs wait and run, by kind and state."""
    found = Counter({(kind, state): 0 for kind in KINDS for state in STATES})
    found.update((kind_of(job), job.state) for job in jobs if not job.ended)
    return found
