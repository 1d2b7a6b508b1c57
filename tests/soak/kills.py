"""Killed at random moments: what was computed stays, and the end is that of an unbroken run."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from poskernel_core.common.errors import ComputeFailed
from tests.soak import BOUND, MODEL, SEED, bits_of, engine_at, request, workers
from tests.support import until
from tests.support.server import ROOT, environment

KILLS = int(os.environ.get("SOAK_KILLS", "20"))
WINDOWS = int(os.environ.get("SOAK_WINDOWS", "200"))


@contextlib.contextmanager
def the_worker(place):
    """Runs of one engine: its worker is killed, every second time while it reads windows."""
    with engine_at(place) as engine:

        def killed(seconds, odd):
            job = engine.submit(request(WINDOWS, context=512))
            if odd:
                until(lambda: job.done or job.ended, BOUND)
            if not job.wait(seconds):
                os.kill(engine.worker_pid, signal.SIGKILL)
                assert job.wait(BOUND), f"a job hangs after a kill: {job.note!r}"
            assert job.error is None or isinstance(job.error, ComputeFailed), repr(job.error)
            return job.error is not None

        yield killed


@contextlib.contextmanager
def the_command(place):
    """Runs of ``show etc``: its process group is killed, every second time with its worker."""
    command = ["show", "etc", MODEL, "--windows", str(WINDOWS), "--context", "512"]

    def killed(seconds, odd):
        process = subprocess.Popen(
            [sys.executable, "-m", "poskernel_core", *command], cwd=ROOT, env=environment(place),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            _, complaint = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            theirs = workers(place) if odd else []
            os.killpg(process.pid, signal.SIGKILL)
            for number in theirs:
                os.kill(number, signal.SIGKILL)
            process.communicate()
            return True
        assert process.returncode == 0, complaint[-300:]
        return False

    yield killed
    until(lambda: not workers(place), BOUND)  # none outlives the process that started it


@pytest.mark.parametrize("runs", [the_worker, the_command])
def test_killed(tmp_path, runs):
    draw, began = random.Random(SEED), time.monotonic()
    with runs(tmp_path / "whole") as killed:
        assert not killed(BOUND, False)
    seconds, whole = time.monotonic() - began, bits_of(tmp_path / "whole")
    kills = passes = 0
    while kills < KILLS:
        place = tmp_path / f"broken{kills}"
        with runs(place) as killed:
            while kills < KILLS and killed(draw.uniform(0, seconds / (1 + kills % 2)), kills % 2):
                kills += 1
            assert not killed(BOUND, False)
        assert whole == bits_of(place)
        passes += 1
    print(f"\n{kills} kills, {len(whole)} arrays equal in each of {passes} passes")
