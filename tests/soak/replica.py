"""One of several servers on one store: started, killed, started again; what it holds of memory."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bench.readers import memory_mb
from tests.soak.trial import workers
from tests.support.server import Server, serve


@dataclass
class Replica:
    name: str
    cache: Path
    log: Path
    cache_gb: float
    lives: int = 0
    server: Server | None = None
    _open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start(self) -> None:
        """Start it, at a port of its own."""
        settings = {"POSKERNEL_CACHE_GB": str(self.cache_gb)}
        self.server = self._open.enter_context(serve(self.cache, self.log, settings=settings))
        self.lives += 1

    def kill(self) -> None:
        """End it with -9, as when a machine fails."""
        if self.server is not None:
            os.kill(self.server.pid, signal.SIGKILL)
            self.stop()

    def stop(self) -> None:
        """End it as a host does."""
        self.server = None
        self._open.close()

    def worker(self) -> int | None:
        """Return the number of its worker's process."""
        if self.server is None:
            return None
        mine = [each for each in workers(self.cache) if _parent(each) == self.server.pid]
        return mine[0] if mine else None


def memory_of(replicas: Iterable[Replica]) -> dict[str, float]:
    """Return what every process holds, in MB (Linux)."""
    found = {}
    for each in replicas:
        numbers = {"server": each.server.pid if each.server else None, "worker": each.worker()}
        for what, number in numbers.items():
            if number is not None:
                with contextlib.suppress(OSError, StopIteration):
                    found[f"{what} of {each.name}"] = memory_mb(number)
    return found


def _parent(number: int) -> int:
    """Return the process that started another (Linux); 0 where it has ended."""
    try:
        words = Path(f"/proc/{number}/stat").read_text("ascii").rpartition(")")[2].split()
    except OSError:
        return 0
    return int(words[1])
