"""A stand-in for the engine's worker process, which says what a test tells it to say."""

import json
import os
import subprocess
import time

WAIT = 10.0
"""Seconds that a test waits for another thread."""


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


def until(condition):
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
