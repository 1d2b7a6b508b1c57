"""What the command line prints for a person: a summary of a result, and a line of progress."""

from __future__ import annotations

import sys

import numpy as np

from poskernel_core.analyses.base import Result
from poskernel_core.job import Job

__all__ = ["print_progress", "summary"]

SHOWN = 12


def print_progress(job: Job | None) -> None:
    """Print one line of progress over the last one, on a terminal only; None clears it."""
    if not sys.stderr.isatty():
        return
    text = "" if job is None else f"{job.note} {progress_text(job)}"
    print(f"\r{text:<78}", end="" if text else "\r", file=sys.stderr, flush=True)


def progress_text(job: Job) -> str:
    """Return ``120 of 500, 35 s left`` as far as it is known."""
    if not job.total:
        return ""
    left = job.seconds_left()
    return f"{job.done} of {job.total}" + ("" if left is None else f", {left:.0f} s left")


def summary(result: Result) -> str:
    """Return a result as text: where it comes from, then every value, long ones shortened."""
    run = result.provenance
    lines = [
        f"{result.analysis} of {run['model']} on {run['windows']} windows of {run['context']} "
        f"tokens of {run['corpus']!r}, {run['dtype']} on {run['device']}, {run['date']}",
        f"parameters: {result.params}",
    ]
    for name, array in result.values.items():
        axes = " x ".join(result.axes[name]) or "one number"
        lines.append(f"\n{name} [{axes}] in {result.units[name]}")
        lines.append(_text(result, name, array))
    return "\n".join(lines)


def _text(result: Result, name: str, array: np.ndarray) -> str:
    if name in result.labels:
        words = np.array([*result.labels[name], "none"], dtype=object)
        array = np.asarray(words.take(array), dtype=str)
    with np.printoptions(precision=4, suppress=True, threshold=4 * SHOWN, edgeitems=4):
        return str(array)
