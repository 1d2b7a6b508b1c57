"""Killed at random moments: what was computed stays, and the end is that of an unbroken run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from poskernel_core import Store
from poskernel_core.common.errors import ComputeFailed
from poskernel_core.engine.job import Job
from tests.soak.trial import (
    BOUND,
    MODEL,
    Options,
    arrays,
    engine_at,
    equality,
    etc,
    forget_workers,
    need,
    workers,
)
from tests.support.server import ROOT, environment


def worker_killed(options: Options, folder: Path) -> str:
    """Kill the worker with -9, every second time while it reads windows; ask again each time."""
    draw, asked = random.Random(options.seed), etc(options.windows)
    began = time.monotonic()
    with engine_at(folder / "whole") as engine:
        job = engine.submit(asked)
        _until_it_reads(job)
        start = time.monotonic() - began
        need(engine.result(asked, BOUND), f"no unbroken result within {BOUND:g} s")
        reads = time.monotonic() - began - start
        whole = arrays(engine.store)
    killed, reading, said = 0, 0, []
    while killed < options.kills:
        with engine_at(folder / f"broken{killed}") as engine:
            while killed < options.kills:
                job = engine.submit(asked)
                if killed % 2:
                    _until_it_reads(job)
                if not job.wait(draw.uniform(0, reads / 2 if killed % 2 else start + reads / 2)):
                    os.kill(engine.worker_pid, signal.SIGKILL)
                    killed, reading = killed + 1, reading + (job.done > 0)
                    need(job.wait(BOUND), f"a job hangs after kill {killed}: {job.note!r}")
                if job.error is None:
                    break
                said_so = isinstance(job.error, ComputeFailed)
                need(said_so, f"a killed worker is reported as {job.error!r}")
            need(engine.result(asked, BOUND), f"no result within {BOUND:g} s after a kill")
            said.append(equality(whole, arrays(engine.store)))
    return f"{killed} kills, {reading} while windows were read; {_summary(said)}"


def _until_it_reads(job: Job) -> None:
    end = time.monotonic() + BOUND
    while not (job.done or job.ended):
        need(time.monotonic() < end, f"a job does not begin: {job.state}, {job.note!r}")
        time.sleep(0.02)


def _summary(said: list[str]) -> str:
    counted = (f"{each} in {number}" for each, number in Counter(said).items())
    return f"{len(said)} passes: {', '.join(counted)}"


def command_killed(options: Options, folder: Path) -> str:
    """Kill the process group of the command line, every second time with its worker."""
    draw, began = random.Random(options.seed), time.monotonic()
    need(_show(folder / "whole", options, BOUND) == 0, "the unbroken command failed")
    seconds, whole = time.monotonic() - began, arrays(Store(folder / "whole"))
    killed, said = 0, []
    while killed < options.kills:
        place = folder / f"broken{killed}"
        while killed < options.kills:
            code = _show(place, options, draw.uniform(0, seconds), also_worker=killed % 2 == 1)
            if code is not None:
                break
            killed += 1
        need(_show(place, options, BOUND) == 0, "the command failed after a kill")
        said.append(equality(whole, arrays(Store(place))))
        forget_workers(place)
    return f"{killed} kills, {_summary(said)}"


def _show(store: Path, options: Options, seconds: float, also_worker: bool = False) -> int | None:
    """Run ``show etc``; kill it after a while and return None, unless it has ended by then."""
    arguments = ["show", "etc", MODEL, "--windows", str(options.windows), "--context", "512"]
    process = subprocess.Popen(
        [sys.executable, "-m", "poskernel_core", *arguments], cwd=ROOT, env=environment(store),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        _, complaint = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        theirs = workers(store) if also_worker else []
        os.killpg(process.pid, signal.SIGKILL)
        for number in theirs:
            os.kill(number, signal.SIGKILL)
        process.communicate()
        return None
    need(process.returncode == 0, f"`show` ended with {process.returncode}: {complaint[-300:]}")
    return process.returncode
