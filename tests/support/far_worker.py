"""The engine's worker in a process of its own, where a script of the test's runs before it begins.

What is to happen in the midst of its work is done there: a test that looks on may be late.
"""

import sys

import pytest

from poskernel_core.engine import process

DIES = """
import os, signal

def die():
    os.kill(os.getpid(), signal.SIGKILL)
"""
AT_REPORTS = """
import time
from poskernel_core.engine import process

usual = process.reporter

def reporter(tell, cancelled):
    report = usual(tell, cancelled)

    def reports(done, total, note):
        report(done, total, note)
        while holds(done, total):
            time.sleep(0.02)
            report(done, total, note)

    return reports

process.reporter = reporter
"""
"""At a report the worker stands still for as long as `holds` says so, or until it is cancelled."""
BEGINS = """
import runpy
runpy.run_module("poskernel_core.engine.worker", run_name="__main__")
"""


def worker_runs(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Workers that are started from now on run a script first."""

    def command(_module: str, *given: str) -> list[str]:
        return [sys.executable, "-P", "-c", script + BEGINS, *given]

    monkeypatch.setattr(process, "command", command)
