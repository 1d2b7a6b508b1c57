"""Measure the seconds and the peak memory of a function call."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def peak_gb() -> float:
    """Return the peak memory of this process so far, in GB (Linux)."""
    with open("/proc/self/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) / 2**20


def _reset_peak() -> float:
    """Reset the peak memory (Linux) and return the memory in use, in GB."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as control:
        control.write("5")
    return peak_gb()


def timed(work: Callable[[], object]) -> dict[str, float]:
    """Call ``work``; return its seconds, and its peak memory above the memory in use before."""
    before = _reset_peak()
    began = time.perf_counter()
    with torch.inference_mode():
        work()
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "peak_gb": peak_gb() - before}
