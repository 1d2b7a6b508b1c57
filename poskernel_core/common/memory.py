"""The memory available to this process, within the limits of the machine and its control groups.

In a container, the machine's free memory alone is misleading: a process that exceeds the limit of
its control group is killed.
"""

from collections.abc import Iterator
from pathlib import Path

import psutil

VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
VERSION_2 = ("memory.max", "memory.current", "")
"""Per cgroup version: the files with limit and usage, and the prefix of the counters' names."""


def free_memory(root: Path = Path("/")) -> int:
    """Return the bytes that this process can still allocate; ``root`` has ``proc`` and ``sys``."""
    return max(0, min([psutil.virtual_memory().available, *_allowed(root)]))


def _allowed(root: Path) -> Iterator[int]:
    """Yield the bytes left in each control group of this process and in its parents."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        group = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        files = VERSION_1 if controllers else VERSION_2
        # In a container, the path may be the host's, while the container's group is at the root.
        for part in ["", *path.strip("/").split("/")]:
            group /= part
            try:
                yield _left(group, *files)
            except (OSError, ValueError):  # no such group here, or no limit: "max"
                continue


def _left(group: Path, bound: str, taken: str, prefix: str) -> int:
    """Return a group's limit minus its usage; the reclaimable file cache counts as free."""
    left, stat = int((group / bound).read_text()), group / "memory.stat"
    for line in stat.read_text().splitlines() if stat.is_file() else ():
        name, count = line.split()
        if name in (f"{prefix}active_file", f"{prefix}inactive_file"):
            left += int(count)
    return left - int((group / taken).read_text())
