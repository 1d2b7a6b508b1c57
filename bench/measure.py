"""Measure the seconds and the peak memory of a function call, or of a process of its own."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")


def peak_gb() -> float:
    """Return the peak memory of this process so far, in GB; NaN where there is no Linux."""
    if not STATUS.exists():
        return math.nan
    lines = STATUS.read_text("ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 2**20


def _reset_peak() -> float:
    """Reset the peak memory (Linux) and return the memory in use, in GB."""
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() / 2**30
    if STATUS.exists():
        STATUS.with_name("clear_refs").write_text("5", "ascii")
    return peak_gb()


def now() -> float:
    """Return the time in seconds once a GPU has done what it was asked for."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def timed(work: Callable[[], object]) -> dict[str, float]:
    """Call ``work``; return its seconds, and its peak memory above the memory in use before.

    The memory is that of the GPU, once there is something on one.
    """
    before = _reset_peak()
    began = now()
    with torch.inference_mode():
        work()
    seconds = now() - began
    on_gpu = torch.cuda.is_initialized()
    peak = torch.cuda.max_memory_allocated() / 2**30 if on_gpu else peak_gb()
    return {"seconds": seconds, "peak_gb": peak - before}


def apart(way: str, module: str, *arguments: object) -> dict[str, float]:
    """Measure a way in a process of its own: return the JSON in the last line of a module."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(f"{way}: {measured}", file=sys.stderr)
    return measured
