"""A process that computes shards; its argument is the directory of the store.

It reads tasks as JSON lines from standard input and writes events as JSON lines to standard output.
Sums go through the store, never through the pipe. Cluster workers call :func:`carried_out`
directly.
"""

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from poskernel_core.common.errors import BadRequest, PosKernelError
from poskernel_core.common.progress import Report
from poskernel_core.common.shards import ShardTask
from poskernel_core.engine.distributed.shards import carry_out
from poskernel_core.storage.store import Store

REPORT_EVERY = 0.2
ONE_AT_A_TIME = threading.Lock()
_CONTEXTS: dict[str, Any] = {}


def carried_out(text: str, report: Report, directory: Path | None = None) -> dict[str, Any]:
    """Compute the shard that a JSON text describes and return the final event.

    An invalid request is not retried (``"again": False``); any other failure is retried, since
    another attempt or machine may succeed.
    """
    try:
        task = ShardTask.model_validate_json(text)
        with ONE_AT_A_TIME:  # to save memory
            made = carry_out(_context(directory), task, report)
    except PosKernelError as error:
        again = not isinstance(error, BadRequest)
        name, message = type(error).__name__, str(error)
        return {"state": "error", "error": name, "message": message, "again": again}
    return {"state": "done", **made}


def _context(directory: Path | None) -> Any:
    """Return this process's worker context, which keeps the model loaded between shards."""
    from poskernel_core.passes.worker_context import WorkerContext  # torch

    name = str(directory)
    if name not in _CONTEXTS:
        _CONTEXTS[name] = WorkerContext(Store(directory))
    return _CONTEXTS[name]


def seldom(say: Callable[[int, int, str], object]) -> Report:
    """Return a report callback limited to five calls of ``say`` a second."""
    last = 0.0

    def report(done: int, total: int, note: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= REPORT_EVERY or done == total:
            last = now
            say(done, total, note)

    return report


def main() -> None:
    """Serve the standard streams; other output is redirected to standard error."""
    events = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def say(event: dict[str, Any]) -> None:
        print(json.dumps(event), file=events, flush=True)

    def told(done: int, total: int, note: str) -> None:
        say({"state": "running", "done": done, "total": total, "note": note})

    for line in sys.stdin:
        try:
            say(carried_out(line, seldom(told), Path(sys.argv[1])))
        except Exception:  # the parent process retries; standard error is its log
            traceback.print_exc()
            say({"state": "error", "error": "ComputeFailed", "message": "", "again": True})


if __name__ == "__main__":
    main()
