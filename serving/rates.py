"""How often a visitor may ask: a number of times within the last minute, counted at every request.

Counted here and not with a library: what there is for one process keeps every address that it has
ever seen, or starts threads. Here a visitor is forgotten a minute after the last request. One
thread alone uses this, the one in which the server's event loop runs.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable

__all__ = ["MINUTE", "Rate"]

MINUTE = 60.0


class Rate:
    """At most ``most`` events of each visitor within any ``seconds``.

    Args:
        most: events; 0: any number.
        seconds: how long an event counts.
        now: a clock that never goes back, in seconds.
    """

    def __init__(
        self, most: int, seconds: float = MINUTE, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.most = most
        self.seconds = seconds
        self._now = now
        self._seen: OrderedDict[str, deque[float]] = OrderedDict()

    def __len__(self) -> int:
        """Return how many visitors are remembered."""
        return len(self._seen)

    def wait(self, visitor: str) -> float:
        """Count an event and return 0; or count none, and return the seconds until it may come."""
        if not self.most:
            return 0.0
        now = self._now()
        self._forget(now)
        times = self._seen.get(visitor)
        if times is None:
            times = self._seen[visitor] = deque()
        while times and times[0] <= now - self.seconds:
            times.popleft()
        if len(times) >= self.most:
            return times[0] + self.seconds - now
        times.append(now)
        self._seen.move_to_end(visitor)
        return 0.0

    def _forget(self, now: float) -> None:
        """Drop the visitors whose last event counts no more; the longest silent come first."""
        while self._seen:
            visitor, times = next(iter(self._seen.items()))
            if times[-1] > now - self.seconds:
                return
            del self._seen[visitor]
