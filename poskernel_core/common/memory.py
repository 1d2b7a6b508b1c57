"""The memory that is free for this process: the machine's, and what its control groups allow.

In a container the machine's memory says little: a control group bounds what its processes take,
and whoever takes more is killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

__all__ = ["free_memory"]

VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
VERSION_2 = ("memory.max", "memory.current", "")
"""Files of a control group: its bound, what it takes; how the names of its counters begin."""


def free_memory(root: Path = Path("/")) -> int:
    """Return the bytes that this process can still take; ``root`` holds ``proc`` and ``sys``."""
    return max(0, min([psutil.virtual_memory().available, *_allowed(root)]))


def _allowed(root: Path) -> Iterator[int]:
    """Yield what each control group of this process, and each that holds it, still allows."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # another system than Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        group = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        files = VERSION_1 if controllers else VERSION_2
        # In a container the path may be the host's, and the container's own group the first.
        for part in ["", *path.strip("/").split("/")]:
            group /= part
            try:
                yield _left(group, *files)
            except (OSError, ValueError):  # no such group here, or no bound: "max"
                continue


def _left(group: Path, bound: str, taken: str, prefix: str) -> int:
    """Return a group's bound less what it takes, without files that the kernel may forget."""
    left, stat = int((group / bound).read_text()), group / "memory.stat"
    for line in stat.read_text().splitlines() if stat.is_file() else ():
        name, count = line.split()
        if name in (f"{prefix}active_file", f"{prefix}inactive_file"):
            left += int(count)
    return left - int((group / taken).read_text())
