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
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from poskernel_core.common.errors import BadRequest, ComputeFailed
from poskernel_core.common.progress import Report
from poskernel_core.common.shards import ShardTask
from poskernel_core.engine.distributed.shards import Attempts, check_arrived, failure, final_event
from poskernel_core.engine.process import Event, reporter
from poskernel_core.storage.store import Store

if TYPE_CHECKING:
    from distributed import Client, Future

PATIENCE = "20s"
TOPIC = "poskernel-shards"


def check_address(address: str) -> None:
    """Check that a scheduler's address is well-formed, and uses TLS unless it is local."""
    try:
        url = urlsplit(address)
        valid = url.scheme in ("tcp", "tls") and url.hostname and url.port
    except ValueError:
        valid = False
    if not valid:
        raise BadRequest(
            f"Expected the address of a Dask scheduler such as tls://host:8786, got "
            f"{address[:80]!r}."
        )
    here = url.hostname == "localhost"
    with contextlib.suppress(ValueError):
        here = here or ipaddress.ip_address(url.hostname or "").is_loopback
    if url.scheme != "tls" and not here:
        raise BadRequest(
            f"{address!r} is another machine and not encrypted, and whoever reaches a Dask "
            "scheduler can run code on its workers: start it with certificates and give its "
            "address as tls://."
        )


def workers_of(address: str) -> int:
    """Return the number of workers of a cluster, which is also the number of shards to make."""
    with _client(address) as client:
        count = len(client.scheduler_info(n_workers=-1)["workers"])
    if not count:
        raise BadRequest(f"The scheduler at {address!r} has no workers: start some, one a GPU.")
    return count


def run_on_cluster(address: str, tasks: Sequence[ShardTask], store: Store, report: Report) -> None:
    """Compute shards on the workers of a cluster; return when all are done."""
    attempts = Attempts(tasks)
    futures: set[Future[str]] = set()
    numbers: dict[Any, int] = {}

    def hear(event: tuple[float, Event]) -> None:
        """Record a worker's progress event; it may concern another client's shard."""
        number = numbers.get(event[1]["key"])
        if number is not None:
            attempts.tell(number, event[1])

    with _client(address) as client:

        def go_on() -> None:
            for future in [submitted for submitted in futures if submitted.done()]:
                futures.remove(future)
                task = tasks[numbers[future.key]]
                attempts.tell(numbers[future.key], _ending(future, task, store))
            while (number := attempts.take()) is not None:
                future = client.submit(shard_on_worker, tasks[number].model_dump_json(), pure=False)
                numbers[future.key] = number
                futures.add(future)

        client.subscribe_topic(TOPIC, hear)
        try:
            attempts.run([go_on], report)
        finally:
            client.cancel(list(futures))
            client.unsubscribe_topic(TOPIC)


def _ending(future: Future[str], task: ShardTask, store: Store) -> Event:
    from distributed import KilledWorker

    try:
        made: Event = json.loads(future.result())
    except KilledWorker as error:
        raise ComputeFailed(
            f"Shard {task.shard} was given up: the workers that computed it died, the last of them "
            f"{error.last_worker.address} (out of memory, or killed); the others are kept: run the "
            "same command again to go on."
        ) from error
    except Exception as error:
        why = str(error) or type(error).__name__
        if future.cancelled():  # the scheduler is gone
            raise failure(task, why) from error
        return {"state": "error", "again": True, "message": why}
    if made["state"] == "done":
        check_arrived(store, task, made, made["machine"])
    return made


def shard_on_worker(text: str) -> str:
    """Compute a shard on a worker; takes the task and returns the final event, both as JSON."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def cancelled() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    report = reporter(lambda event: worker.log_event(TOPIC, {"key": key, **event}), cancelled)
    return json.dumps({**final_event(text, report), "machine": worker.address})


@contextlib.contextmanager
def _client(address: str) -> Iterator[Client]:
    check_address(address)
    if importlib.util.find_spec("distributed") is None:
        raise BadRequest(
            "A cluster needs the package 'distributed': install PosKernel with its extra, as in "
            "pip install '.[cluster]' in a checkout."
        )
    from distributed import Client, Security

    try:
        security = Security(require_encryption=True) if address.startswith("tls:") else None
        if security and security.get_connection_args("client").get("ssl_context") is None:
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
