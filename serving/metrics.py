"""Numbers about the server for Prometheus, at an address of their own, which visitors never see.

They are read where they are counted whenever Prometheus asks; nothing else is done for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    start_http_server,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from poskernel_core import __version__
from poskernel_core.common.errors import BadRequest
from poskernel_core.engine.counts import open_by_kind
from poskernel_core.engine.engine import Engine
from poskernel_core.storage.condition import STATES
from serving.limits import Doors
from serving.runs import RUNS, Runs
from serving.watch import Watch

__all__ = ["ServerCollector", "listen", "registry", "tell"]


@dataclass(frozen=True)
class ServerCollector(Collector):
    """What this server knows of itself.

    Attributes:
        doors: who is in, and who was not let in.
        watch: the engine and its store.
        runs: the runs of the script.
    """

    doors: Doors
    watch: Watch
    runs: Runs

    def describe(self) -> Iterable[Metric]:
        """Return nothing: to be registered, nothing is looked at."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Yield all numbers; those of an engine only where there is one."""
        build = GaugeMetricFamily(
            "poskernel_build_info", "Which version serves; always 1.", labels=["version"]
        )
        build.add_metric([__version__], 1)
        yield build
        yield from self._of_visitors()
        yield from self._of_store()
        if self.watch.engine is not None:
            yield from _of_engine(self.watch.engine)

    def _of_visitors(self) -> Iterable[Metric]:
        bounds = self.doors.bounds
        yield GaugeMetricFamily(
            "poskernel_sessions", "Pages that are open in a browser.", self.doors.sessions
        )
        yield GaugeMetricFamily(
            "poskernel_sessions_limit", "Sessions that may be open at once; 0: any number.",
            bounds.sessions,
        )  # fmt: skip
        refused = CounterMetricFamily(
            "poskernel_refused", "Requests and sessions not let in, by limit.", labels=["limit"]
        )
        for limit, number in dict(self.doors.refused).items():
            refused.add_metric([limit], number)
        yield refused
        runs = HistogramMetricFamily(
            "poskernel_run_seconds",
            "Runs of the script from beginning to end, by page: what a click costs the server.",
            labels=["page"],
        )
        for page, times in self.runs.times.items():
            runs.add_metric([page], times.up_to(), times.seconds)
        yield runs

    def _of_store(self) -> Iterable[Metric]:
        found = self.watch.store()
        states = GaugeMetricFamily(
            "poskernel_store_state", "How the store is: 1 for what holds.", labels=["state"]
        )
        for state in STATES:
            states.add_metric([state], float(found.state == state))
        yield states
        if found.entries is not None:
            yield GaugeMetricFamily("poskernel_store_entries", "Entries kept.", found.entries)
        if found.size is not None:
            yield GaugeMetricFamily("poskernel_store_bytes", "Bytes they take.", found.size)


def _of_engine(engine: Engine) -> Iterable[Metric]:
    counts = engine.counts
    yield GaugeMetricFamily(
        "poskernel_store_limit_bytes", "Bytes above which the oldest entries go.",
        engine.store.limit,
    )  # fmt: skip
    yield CounterMetricFamily(
        "poskernel_result_hits", "Results that were asked for and there.", counts.hits
    )
    yield CounterMetricFamily(
        "poskernel_result_misses", "Results that were asked for and not there.", counts.misses
    )
    yield CounterMetricFamily(
        "poskernel_worker_starts", "Starts of the compute process; each after the first followed "
        "an end.", counts.worker_starts,
    )  # fmt: skip
    yield GaugeMetricFamily(
        "poskernel_worker_alive", "Whether there is a compute process.", engine.worker == "alive"
    )
    jobs = GaugeMetricFamily(
        "poskernel_jobs", "Computations that wait or run.", labels=["kind", "state"]
    )
    for labels, number in open_by_kind(engine.open_jobs()).items():
        jobs.add_metric(labels, number)
    yield jobs
    ended = SummaryMetricFamily(
        "poskernel_job_seconds",
        "Computations that have ended, by how; seconds from question to end.",
        labels=["kind", "how"],
    )
    for labels, tally in counts.tallies.items():
        ended.add_metric(labels, tally.jobs, tally.seconds)
    yield ended


def tell(address: tuple[str, int], doors: Doors, watch: Watch) -> Callable[[], None]:
    """Tell Prometheus of this server at a host and port; return what ends that.

    Raises:
        BadRequest: nobody can listen there.
    """
    return listen(address, registry(ServerCollector(doors, watch, RUNS)))


def registry(collector: Collector) -> CollectorRegistry:
    """Return what is told: ours, and the process's memory, files and garbage."""
    found = CollectorRegistry()
    found.register(collector)
    ProcessCollector(registry=found)
    PlatformCollector(registry=found)
    GCCollector(registry=found)
    return found


def listen(address: tuple[str, int], numbers: CollectorRegistry) -> Callable[[], None]:
    """Answer Prometheus at a host and port, in a thread of its own; return what ends that.

    Raises:
        BadRequest: nobody can listen there.
    """
    host, port = address
    try:
        server, thread = start_http_server(port, host, registry=numbers)  # a daemon thread
    except OSError as error:
        raise BadRequest(
            f"Expected POSKERNEL_METRICS to be an address that is free on this machine, got "
            f"{host}:{port} ({error.strerror or error})."
        ) from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
