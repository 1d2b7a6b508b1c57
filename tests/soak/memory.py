"""Whether a process's memory is flat: a line through samples of it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

STEEPEST = 0.1
"""Rise over the second half of a trial, as a share of the mean, up to which memory is flat."""


def rise(samples: list[tuple[float, float]]) -> float:
    """Return how far a line through samples ``(time, size)`` rises, as a share of their mean."""
    times, sizes = np.array(samples).T
    slope = np.polyfit(times - times[0], sizes, 1)[0]
    return float(slope * (times[-1] - times[0]) / sizes.mean())


def verdicts(
    memory: dict[str, list[tuple[float, float]]], names: Iterable[str], seconds: float
) -> tuple[str, bool]:
    """Say of each process named whether its memory is flat; tell whether that of any is not.

    The rule: over the second half, a line through the samples rises by less than ``STEEPEST``.
    """
    said, steep = [], False
    for name in names:
        late = [each for each in memory.get(name, []) if each[0] >= seconds / 2]
        if len(late) < 3:
            said.append(f"{name} not seen")
            continue
        share, mean = rise(late), np.mean([size for _, size in late])
        steep = steep or share >= STEEPEST
        word = "flat" if share < STEEPEST else "GROWS"
        said.append(f"{name} {word} ({share:+.1%} of {mean:.0f} MB)")
    return ", ".join(said), steep
