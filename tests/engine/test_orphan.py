"""A worker whose parent is gone."""

import json
import subprocess
import sys

from poskernel_core.common.modules import environment
from poskernel_core.common.specs import Execution, Request
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.plan import make_plan

WORKER = """
import runpy, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from poskernel_core.engine import execute

def compute(store, plan, report):
    report(0, 2, "Computing")
    threading.main_thread().join()
    ThreadPoolExecutor(1).submit(int)

execute.compute = compute
threading.Timer(2, int).start()
runpy.run_module("poskernel_core.engine.worker", run_name="__main__")
"""
"""Python waits for the timer at its end, and takes no new work for its pools meanwhile."""


def test_it_ends_without_a_word(tmp_path):
    """In the middle of the arithmetic on stored sums, which nobody waits for any longer."""
    run = describe_run("demo-attn-2l", context=32, windows=20)
    plan = make_plan(Request(analysis="etc", run=run))
    execution = Execution(device="cpu").model_dump()
    task = {"key": "a", "plan": plan.as_json(), "execution": execution, "client": ""}
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, tmp_path], env=environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    print(json.dumps({"tasks": [task]}), file=worker.stdin, flush=True)
    assert "Computing" in worker.stdout.readline()
    said, complaints = worker.communicate(timeout=60)

    assert (0, "", "") == (worker.returncode, said, complaints)
