"""Compute shards on the workers of a Dask cluster.

Tasks are sent as JSON; workers return store keys or file names. Dask's scheduler and workers
unpickle messages, so anyone who can connect can run code there. A remote address must therefore use
TLS, with certificates that both sides check. Only this module imports the optional package
``distributed``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from poskernel_core.common.errors import BadRequest, Cancelled, ComputeFailed, by_name
from poskernel_core.common.progress import Report
from poskernel_core.common.rounding import counted
from poskernel_core.common.shards import ShardTask
from poskernel_core.engine.distributed.attempts import ATTEMPTS, failure
from poskernel_core.engine.distributed.shard_worker import carried_out, seldom
from poskernel_core.engine.distributed.shards import check_arrived
from poskernel_core.storage.store import Store

if TYPE_CHECKING:
    from distributed import Client

PATIENCE = "20s"
LOOK_EVERY = 0.5
TOPIC = "poskernel-shards"


def check_address(address: str) -> None:
    """Check that a scheduler's address is well-formed, and uses TLS unless it is local.

    Raises:
        BadRequest: it is malformed, or remote and not encrypted.
    """
    try:
        found = urlsplit(address)
        whole = found.scheme in ("tcp", "tls") and found.hostname and found.port
    except ValueError:
        whole = False
    if not whole:
        raise BadRequest(
            f"Expected the address of a Dask scheduler such as tls://host:8786, got "
            f"{address[:80]!r}."
        )
    if found.scheme != "tls" and not _is_here(found.hostname or ""):
        raise BadRequest(
            f"{address!r} is another machine and not encrypted, and whoever reaches a Dask "
            "scheduler can run code on its workers: start it with certificates and give its "
            "address as tls://."
        )


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def workers_of(address: str) -> int:
    """Return the number of workers of a cluster, which is also the number of shards to make.

    Raises:
        BadRequest: the cluster cannot be reached, or has no workers.
    """
    with _client(address) as client:
        count = len(client.scheduler_info(n_workers=-1)["workers"])
    if not count:
        raise BadRequest(f"The scheduler at {address!r} has no workers: start some, one a GPU.")
    return count


def run_on_cluster(address: str, tasks: Sequence[ShardTask], store: Store, report: Report) -> None:
    """Compute shards on the workers of a cluster; return when all are done.

    Raises:
        BadRequest: the cluster cannot be reached, or a shard cannot be computed at all.
        Cancelled: raised by ``report``; the workers stop at their next batch.
        ComputeFailed: a shard failed in every attempt, or its workers died; the message names the
            shard.
    """
    with _client(address) as client:
        progress = _Progress(len(tasks))
        client.subscribe_topic(TOPIC, progress.take)
        waiting = {
            client.submit(
                shard_on_worker, task.model_dump_json(), pure=False, retries=ATTEMPTS - 1
            ): task
            for task in tasks
        }
        progress.keys = {str(future.key) for future in waiting}
        try:
            while waiting:
                ended = [future for future in waiting if future.done()]
                for future in ended:
                    _take(future, waiting.pop(future), store)
                    progress.finished += 1
                report(*progress.told())
                if waiting and not ended:
                    progress.changed.wait(LOOK_EVERY)
                    progress.changed.clear()
        finally:
            client.cancel(list(waiting))
            client.unsubscribe_topic(TOPIC)


def _take(future: Any, task: ShardTask, store: Store) -> None:
    """Check the outcome of a shard.

    Raises:
        BadRequest, ComputeFailed: the shard failed for good, or was written to a disk that this
            machine cannot read.
    """
    from distributed import KilledWorker

    try:
        made = json.loads(future.result())
    except KilledWorker as error:
        raise ComputeFailed(
            f"Shard {task.shard} was given up: the workers that computed it died, the last of them "
            f"{error.last_worker.address} (out of memory, or killed); the others are kept: run the "
            "same command again to go on."
        ) from error
    except Exception as error:  # Dask has already retried the task
        raise failure(task, str(error) or type(error).__name__) from error
    if made["state"] == "error":
        raise by_name(made["error"])(made["message"])
    check_arrived(store, task, made, made["machine"])


class _Progress:
    """Progress of the shards, collected from the workers' events."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._windows: dict[str, tuple[int, int]] = {}
        self.keys: set[str] = set()
        self.finished = 0
        self.changed = threading.Event()

    def take(self, event: tuple[float, dict[str, Any]]) -> None:
        """Record a worker's progress event; it may concern another client's shard."""
        told = event[1]
        # A new dict, since another thread may be reading the old one.
        self._windows = {**self._windows, told["key"]: (told["done"], told["total"])}
        self.changed.set()

    def told(self) -> tuple[int, int, str]:
        """Return windows done and windows in total (of shards begun), and a note on shards done."""
        own = [each for key, each in self._windows.items() if key in self.keys]
        done, total = (sum(each[part] for each in own) for part in (0, 1))
        return done, total, f"{self.finished} of {counted(self._count, 'shard')} done; windows"


def shard_on_worker(text: str) -> str:
    """Compute a shard on a worker; takes the task and returns the final event, both as JSON.

    Raises:
        RuntimeError: the shard failed, and a retry may succeed.
    """
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def say(done: int, total: int, note: str) -> None:
        worker.log_event(TOPIC, {"key": key, "done": done, "total": total})

    tell = seldom(say)

    def report(done: int, total: int, note: str) -> None:
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":
            raise Cancelled("The computation was cancelled.")
        tell(done, total, note)

    made = carried_out(text, report)
    if made["state"] == "error" and made["again"] and made["error"] != Cancelled.__name__:
        raise RuntimeError(made["message"])
    return json.dumps({**made, "machine": worker.address})


@contextmanager
def _client(address: str) -> Iterator[Client]:
    """Connect to a scheduler, with the certificates from Dask's configuration.

    Raises:
        BadRequest: the address is invalid, the scheduler does not answer, or the optional package
            is missing.
    """
    check_address(address)
    if importlib.util.find_spec("distributed") is None:
        raise BadRequest(
            "A cluster needs the package 'distributed': install PosKernel with its extra, as in "
            "pip install '.[cluster]' in a checkout."
        )
    from distributed import Client, Security

    security = None
    try:
        if address.startswith("tls:"):
            security = Security(require_encryption=True)
            if security.get_connection_args("client").get("ssl_context") is None:
                raise BadRequest(
                    f"{address!r} is encrypted, and no certificates are given: name them in Dask's "
                    "configuration (distributed.comm.tls: ca-file, client.cert, client.key)."
                )
        client = Client(address, security=security, timeout=PATIENCE, set_as_default=False)
    except (OSError, TypeError, ValueError, RuntimeError) as error:
        raise BadRequest(
            f"No Dask scheduler can be reached at {address!r} ({str(error)[:200]})."
        ) from error
    try:
        yield client
    finally:
        with contextlib.suppress(OSError, TimeoutError):
            client.close()
