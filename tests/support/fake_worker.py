"""A stand-in for the engine's worker process, which says what a test tells it to say."""

import json
import os
import subprocess

import numpy as np

from poskernel_core.common.result import Result
from poskernel_core.engine.provenance import to_entry
from tests.support import WAIT, until


class FakeWorker(subprocess.Popen):
    """No process: it keeps what it is told and says what the test tells it to say."""

    def __init__(self, made):
        self.code, self.pipes = None, [os.pipe(), os.pipe()]
        self.told = os.fdopen(self.pipes[0][0], encoding="utf-8")
        self.stdin = os.fdopen(self.pipes[0][1], "w", encoding="utf-8")
        self.stdout = os.fdopen(self.pipes[1][0], encoding="utf-8")
        self.mouth = os.fdopen(self.pipes[1][1], "w", encoding="utf-8")
        made.append(self)

    def __del__(self):
        """Nothing was started, so nothing is reaped."""

    def poll(self):
        return self.code

    def terminate(self):
        """End as a terminated process ends."""
        self.die(-15)

    def wait(self, timeout=None):
        return self.code

    def say(self, key, state, **more):
        print(json.dumps({"key": key, "state": state, **more}), file=self.mouth, flush=True)

    def hear(self):
        return json.loads(self.told.readline())

    def die(self, code=-9, close=True):
        """End; the engine notices from the exit code, and from the closed pipe."""
        self.code = code
        self.told.close()
        if close and not self.mouth.closed:
            self.mouth.close()


def put(engine, plan):
    """Store a result, as the worker does before it says that it is done."""
    values, axes, params = {"etc": np.array([2.0])}, {"etc": ("layer",)}, plan.params.model_dump()
    about = {"windows": 4, "context": 31}
    result = Result("etc", params, values, axes, {"etc": "tokens"}, provenance=about)
    engine.store.put(plan.key, *to_entry(result))


class Desk:
    """An engine whose workers are stand-ins; its requests differ by how many keys they skip.

    `there`, if it is set, are the only visitors who are present.
    """

    def __init__(self, engine, workers, request_of):
        self.engine, self.workers, self.plan, self.there = engine, workers, request_of, None
        engine._present = lambda who: self.there is None or not who or who in self.there  # noqa: SLF001

    def ask(self, skip=4, visitor=""):
        return self.engine.submit(self.plan(skip), visitor)

    def cancel(self, skip=4, visitor=""):
        return self.engine.cancel(self.plan(skip), visitor)

    def running(self, skip=4):
        return self.engine.running(self.plan(skip))

    def hear(self, number=1):
        """What the worker is told next, so many messages of it."""
        return [self.workers[-1].hear() for _ in range(number)]

    def say(self, job, state, **more):
        self.workers[-1].say(job.key, state, **more)

    def begin(self, job, done=1):
        """Let a job run, and wait until the engine has heard of it."""
        self.say(job, "running", done=done, total=7, note="Reading")
        until(lambda: job.done == done)

    def end(self, job, state="done", error="ComputeFailed", message="Broken."):
        """Let a job end, and wait until it has."""
        self.say(job, state, error=error, message=message)
        assert job.wait(WAIT)
        assert job.state == state
