"""Runs split into shards for several machines: list, compute and try again, merge.

The shards depend only on the request, never on the contents of a machine's store. So independent
machines split the same run into the same shards.
"""

from __future__ import annotations

import re
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poskernel_core.common.errors import (
    BadRequest,
    Cancelled,
    ComputeFailed,
    PosKernelError,
    by_name,
)
from poskernel_core.common.progress import Report
from poskernel_core.common.rounding import counted
from poskernel_core.common.shards import WHOLE, Shard, ShardTask
from poskernel_core.common.specs import Execution, RunSpec
from poskernel_core.engine.process import Event
from poskernel_core.engine.provenance import software
from poskernel_core.storage.archive import export_entries
from poskernel_core.storage.shards import Source, partial_keys, partials_of
from poskernel_core.storage.statistics import windows_of
from poskernel_core.storage.store import Store

if TYPE_CHECKING:
    from poskernel_core.passes.worker_context import WorkerContext

ONE_AT_A_TIME = threading.Lock()
ATTEMPTS = 3
LOOK_EVERY = 0.2


def tasks_of(
    passes: Iterable[RunSpec],
    shards: Sequence[Shard],
    execution: Execution,
    folder: Path | None = None,
) -> list[ShardTask]:
    """Return the tasks for the given shards of every pass."""
    passes = list(passes)
    if any(run.until is not None for run in passes):
        raise BadRequest("A run that ends at a target cannot be split: leave the target out.")
    where = None if folder is None else str(folder.resolve())
    return [
        ShardTask(run=run, shard=shard, execution=execution, folder=where)
        for run in passes
        for shard in shards
    ]


def carry_out(shared: WorkerContext, task: ShardTask, report: Report) -> dict[str, Any]:
    """Compute a shard unless it is stored; return the ``keys`` of its entries.

    If the task names a folder, the entries are also written to a file there, returned as ``file``.
    """
    from poskernel_core.passes.runner import gather_shard  # torch

    store, run, shard = shared.store, task.run, task.shard
    with _locked(store, run, shard, report, "shard"):
        if not is_there(store, task) and not gather_shard(
            shared, run, shard, task.execution, software(), report
        ):
            return {"keys": [], "file": None}
    keys = partial_keys(store, run, shard)
    if not keys or any(store.get(key) is None for key in keys):
        raise ComputeFailed(
            f"Shard {shard} cannot be read from the store: run the same command again, with a "
            "larger store if it says so once more (POSKERNEL_CACHE_GB)."
        )
    file = None
    if task.folder is not None:
        file = Path(task.folder) / file_name(task)
        export_entries(store, keys, run.model, file)
    return {"keys": keys, "file": None if file is None else str(file)}


def _locked(
    store: Store, run: RunSpec, shard: Shard, report: Report, what: str
) -> AbstractContextManager[None]:
    """Return the lock of a shard; the only shard of an unsplit run uses the run's lock."""
    of = {} if shard == WHOLE else {"shard": shard.model_dump()}
    note = f"Waiting for another process at the same {what}"
    return store.lock(windows_of(run).digest(kind="lock", **of), partial(report, 0, 0, note))


def final_event(text: str, report: Report, directory: Path | None = None) -> dict[str, Any]:
    """Compute the shard that a JSON text describes and return the final event, for another process.

    An invalid or cancelled request is not retried (``"again": False``); any other failure is, since
    another attempt or machine may succeed.
    """
    try:
        with ONE_AT_A_TIME:  # to save memory
            made = carry_out(_context(directory), ShardTask.model_validate_json(text), report)
    except Exception as error:
        if not isinstance(error, PosKernelError):
            traceback.print_exc()
        name, again = type(error).__name__, not isinstance(error, BadRequest | Cancelled)
        return {"state": "error", "error": name, "message": str(error) or name, "again": again}
    return {"state": "done", **made}


@cache
def _context(directory: Path | None) -> WorkerContext:
    """Return this process's worker context, which keeps the model loaded between shards."""
    from poskernel_core.passes.worker_context import WorkerContext  # torch

    return WorkerContext(Store(directory))


def is_there(store: Store, task: ShardTask) -> bool:
    """Return whether the store has every block of a shard, computed by the current versions."""
    for name in task.run.gather:
        partials = partials_of(store, task.run, name, task.shard)
        header = partials[0].header if partials else None
        blocks = [] if header is None else task.shard.blocks(header.windows, header.context)
        known = all(manifest.made.versions == software() for manifest in partials)
        if not partials or len(partials) < len(blocks) or not known:
            return False
    return all(map(store.has, partial_keys(store, task.run, task.shard)))


def file_name(task: ShardTask) -> str:
    """Return the name of a shard's file (model, run, number); the same on every machine."""
    model = re.sub("[^A-Za-z0-9.-]+", "-", Path(task.run.model.name).name)[:60]
    run, shard = windows_of(task.run).digest()[:8], task.shard
    return f"{model}-{run}-shard-{shard.number}-of-{shard.of}.zip"


def run_here(tasks: Sequence[ShardTask], store: Store, report: Report) -> None:
    """Compute shards in this process, sequentially."""
    from poskernel_core.passes.worker_context import WorkerContext  # torch

    shared = WorkerContext(store)
    for task in tasks:

        def report_shard(done: int, total: int, note: str, shard: Shard = task.shard) -> None:
            report(done, total, f"Shard {shard}: {note}")

        carry_out(shared, task, report_shard)


def check_arrived(store: Store, task: ShardTask, made: Mapping[str, Any], machine: str) -> None:
    """Check that this machine can read a shard that another machine wrote."""
    file = made["file"]
    if file is not None and not Path(file).is_file():
        raise BadRequest(
            f"{machine} wrote shard {task.shard} to {file!r}, which is not there on this machine: "
            "name a folder that all machines share."
        )
    if file is None and not all(map(store.has, made["keys"])):
        raise BadRequest(
            f"{machine} wrote shard {task.shard} to a store of its own: give all machines one "
            "store (POSKERNEL_CACHE), or name a folder that they share, for shards as files."
        )


def merge(
    store: Store, sources: Mapping[str, Source], passes: Iterable[RunSpec], of: int, report: Report
) -> bool:
    """Merge the shards of every pass and write the statistics that the store lacks.

    Returns whether any statistics were missing.
    """
    from poskernel_core.passes.merging import merge_shards  # torch

    merged = False
    for run in passes:
        with _locked(store, run, WHOLE, report, "work"):
            merged = merge_shards(store, sources, run, of, report) or merged
    return merged


def failure(task: ShardTask, why: str) -> ComputeFailed:
    """Return the error for a shard that failed in every attempt."""
    return ComputeFailed(
        f"Shard {task.shard} failed {ATTEMPTS} times ({why[:300]}); the others are kept: run the "
        "same command again to go on."
    )


class Attempts:
    """A queue of numbered tasks with retries and progress; a thread for each may tell its events.

    The ``error`` of a task that failed for good ends all work.
    """

    def __init__(self, tasks: Sequence[ShardTask]) -> None:
        self.tasks = tasks
        self.error: Exception | None = None
        self._waiting = deque(range(len(tasks)))
        self._failed = [0] * len(tasks)
        self._progress = [(0, 0)] * len(tasks)
        self._done: set[int] = set()
        self._changed = threading.Event()

    def run(self, workers: Iterable[Callable[[], None]], report: Report) -> None:
        """Let workers go on, which take a task when they are idle, until all tasks are done."""
        while len(self._done) < len(self.tasks) and self.error is None:
            for go_on in workers:
                go_on()
            self._changed.wait(LOOK_EVERY)
            self._changed.clear()
            report(*self.progress())
        if self.error is not None:
            raise self.error

    def take(self) -> int | None:
        """Return the number of the next task; None if none is waiting."""
        return self._waiting.popleft() if self._waiting and self.error is None else None

    def tell(self, number: int, event: Event) -> None:
        """Record an event (progress, success or failure) of a task."""
        if event["state"] == "running":
            self._progress[number] = event["done"], event["total"]
            return
        if event["state"] == "done":
            done = max(1, self._progress[number][1])
            self._progress[number] = done, done
            self._done.add(number)
        elif not event["again"]:
            self.error = by_name(event["error"])(event["message"])
        elif self._failed[number] < ATTEMPTS - 1:
            self._failed[number] += 1
            self._waiting.append(number)
        else:
            self.error = failure(self.tasks[number], event["message"])
        self._changed.set()

    def progress(self) -> tuple[int, int, str]:
        """Return windows done and windows in total (of shards begun), and a note on shards done."""
        done, total = (sum(pair[part] for pair in self._progress) for part in (0, 1))
        count = counted(len(self.tasks), "shard")
        return done, total, f"{len(self._done)} of {count} done; windows"
