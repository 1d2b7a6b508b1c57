"""Builders of models, oracles, servers and browsers for the tests."""

import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""

WAIT = 60.0
"""Seconds that a test waits for another thread; the machine may stand still for some."""


def until(condition, seconds=WAIT, pause=0.01):
    """Wait for what another thread or process is about to do."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(pause)


def silent(done, total, note):
    """A report that nobody reads."""


class Made(dict):
    """What is made of each name when it is first asked for."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def __missing__(self, name):
        self[name] = self.make(name)
        return self[name]

    def __repr__(self):
        return f"Made({', '.join(self)})"
