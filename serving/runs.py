"""How long runs of the script take, by page: counted by ``app.py``, told by the metrics."""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass

__all__ = ["BUCKETS", "RUNS", "Runs", "Times"]

BUCKETS = (0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds up to which runs are counted together."""


@dataclass(frozen=True)
class Times:
    """Runs of one page.

    Attributes:
        counts: runs that took up to each of the ``BUCKETS`` and longer than the one before; last,
            those that took longer than all.
        seconds: of all of them together.
    """

    counts: tuple[int, ...] = (0,) * (len(BUCKETS) + 1)
    seconds: float = 0.0

    def with_run(self, seconds: float) -> Times:
        """Return these and one more."""
        place = bisect_left(BUCKETS, seconds)
        counts = (*self.counts[:place], self.counts[place] + 1, *self.counts[place + 1 :])
        return Times(counts, self.seconds + seconds)

    def up_to(self) -> list[tuple[str, float]]:
        """Return how many took up to so many seconds, ``+Inf`` last, as Prometheus counts."""
        names = [*map(str, BUCKETS), "+Inf"]
        return [(name, float(sum(self.counts[: place + 1]))) for place, name in enumerate(names)]


class Runs:
    """Counted in the thread of any session."""

    def __init__(self) -> None:
        self._times: dict[str, Times] = {}
        self._lock = threading.Lock()

    def ended(self, page: str, seconds: float) -> None:
        """Count a run of the script from its beginning to its end."""
        with self._lock:
            self._times[page] = self._times.get(page, Times()).with_run(seconds)

    @property
    def times(self) -> dict[str, Times]:
        """The runs so far, by page."""
        with self._lock:
            return dict(self._times)


RUNS = Runs()
"""Those of this server."""
