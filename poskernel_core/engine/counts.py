"""Counters of an engine's work since it was created, for the operators of a server."""

import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from poskernel_core.engine.job import Job

KINDS = ("analysis", "experiment", "composition")
"""Kinds of jobs: an analysis of statistics (including the pass for missing statistics), an
experiment (which runs the model itself), or a composition of several of these."""

STATES = ("queued", "running")
ENDINGS = ("done", "error", "cancelled")


@dataclass(frozen=True)
class Tally:
    """The number of jobs that ended in one way, and their total seconds from submission to end."""

    jobs: int = 0
    seconds: float = 0.0


class Counts:
    """Thread-safe counters of an engine; hits are requests whose result was in the store."""

    def __init__(self) -> None:
        self.hits = 0
        self.misses = 0
        self.worker_starts = 0
        self._ended = {(kind, how): Tally() for kind in KINDS for how in ENDINGS}
        self._lock = threading.Lock()

    def looked(self, hit: bool) -> None:
        """Count a lookup of a result."""
        with self._lock:
            self.hits += hit
            self.misses += not hit

    def ended(self, job: Job) -> None:
        """Count a job that has just ended."""
        ending, seconds = (kind_of(job), job.state), time.monotonic() - job.began
        with self._lock:
            was = self._ended[ending]
            self._ended[ending] = Tally(was.jobs + 1, was.seconds + seconds)

    @property
    def tallies(self) -> dict[tuple[str, str], Tally]:
        """The ended jobs by kind and ending (``done``, ``error`` or ``cancelled``)."""
        with self._lock:
            return dict(self._ended)


def kind_of(job: Job) -> str:
    """Return the kind of a job, one of ``KINDS``."""
    if job.plan.composition is not None:
        return "composition"
    return "analysis" if job.plan.experiment is None else "experiment"


def open_by_kind(jobs: Iterable[Job]) -> Counter[tuple[str, str]]:
    """Return the number of open jobs by kind and state."""
    counts = Counter({(kind, state): 0 for kind in KINDS for state in STATES})
    counts.update((kind_of(job), job.state) for job in jobs if not job.ended)
    return counts
