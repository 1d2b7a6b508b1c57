"""Whether a process's memory is flat: a line through what it holds when it rests.

What a computation takes for a moment comes and goes (100 to 180 MB of a worker's 500, measured
every two seconds), and a line through all samples rises or falls with the questions that happen to
be asked at either end. What is never given back raises the lowest sample of a minute as well.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

__all__ = ["STEEPEST", "held", "rise", "verdicts"]

STEEPEST = 0.1
"""Rise over the second half of a trial, as a share of the mean, up to which memory is flat."""


def held(samples: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the lowest sample ``(time in seconds, size)`` of every minute."""
    lowest: dict[int, tuple[float, float]] = {}
    for sample in samples:
        minute = int(sample[0] // 60)
        lowest[minute] = min(lowest.get(minute, sample), sample, key=lambda each: each[1])
    return [lowest[minute] for minute in sorted(lowest)]


def rise(samples: list[tuple[float, float]]) -> float:
    """Return how far a line through samples ``(time, size)`` rises, as a share of their mean."""
    times, sizes = np.array(samples).T
    slope = np.polyfit(times - times[0], sizes, 1)[0]
    return float(slope * (times[-1] - times[0]) / sizes.mean())


def verdicts(
    memory: dict[str, list[tuple[float, float]]], names: Iterable[str], seconds: float
) -> tuple[str, bool]:
    """Say of each process named whether its memory is flat; tell whether that of any is not.

    The rule: over the second half, a line through the lowest sample of every minute rises by less
    than ``STEEPEST``. The line through all samples is told beside it.
    """
    said, steep = [], False
    for name in names:
        late = [each for each in memory.get(name, []) if each[0] >= seconds / 2]
        lowest = held(late)
        if len(lowest) < 3:
            said.append(f"{name} not seen")
            continue
        share = rise(lowest)
        steep = steep or share >= STEEPEST
        word = "flat" if share < STEEPEST else "GROWS"
        said.append(
            f"{name} {word} ({share:+.1%} of {_mean(lowest):.0f} MB at rest, {rise(late):+.1%} of "
            f"{_mean(late):.0f} MB at all moments)"
        )
    return ", ".join(said), steep


def _mean(samples: list[tuple[float, float]]) -> float:
    return float(np.mean([size for _, size in samples]))
