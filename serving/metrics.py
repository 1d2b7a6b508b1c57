"""Metrics for Prometheus, at a separate address that clients never see.

All metrics except the script's run times are read when Prometheus asks, from the counters of the
parts that the metrics describe.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client.core import CounterMetricFamily as Counter
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from poskernel_core import __version__
from poskernel_core.common.errors import BadRequest
from poskernel_core.engine.counts import open_by_kind
from poskernel_core.engine.engine import Engine
from serving.admission import Admission
from serving.health import STATES, HealthMonitor

RUN_SECONDS = Histogram(
    "poskernel_run_seconds",
    "Runs of the script from beginning to end, by page: what a click costs the server.",
    ["page"],
    buckets=(0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0),
    registry=None,
)
Family = TypeVar("Family", Counter, Gauge)


@dataclass(frozen=True)
class ServerCollector(Collector):
    """Collects the metrics of a server, and those of its engine if there is one."""

    admission: Admission
    monitor: HealthMonitor

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering reads no metrics."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics."""
        counted, store = self.admission, self.monitor.store()
        build = Gauge("poskernel_build_info", "The version; always 1.", labels=["version"])
        yield _filled(build, {__version__: 1})
        yield Gauge("poskernel_sessions", "Pages that are open in a browser.", counted.sessions)
        yield Gauge(
            "poskernel_sessions_limit", "Sessions that may be open at once; 0: no limit.",
            counted.limits.max_sessions,
        )  # fmt: skip
        refused = Counter("poskernel_refused", "Refused, by limit.", labels=["limit"])
        yield _filled(refused, dict(counted.refused))
        states = Gauge("poskernel_store_state", "1 for the store's state.", labels=["state"])
        yield _filled(states, {state: store.state == state for state in STATES})
        if store.entries is not None:
            yield Gauge("poskernel_store_entries", "Entries kept.", store.entries)
        if store.size is not None:
            yield Gauge("poskernel_store_bytes", "Bytes they take.", store.size)
        if self.monitor.engine is not None:
            yield from _of_engine(self.monitor.engine)


def _of_engine(engine: Engine) -> Iterable[Metric]:
    counts = engine.counts
    yield Gauge(
        "poskernel_store_limit_bytes", "Bytes above which the oldest entries go.",
        engine.store.limit,
    )  # fmt: skip
    yield Counter("poskernel_result_hits", "Results asked for and found.", counts.hits)
    yield Counter("poskernel_result_misses", "Results asked for and not found.", counts.misses)
    yield Counter("poskernel_worker_starts", "Starts of the worker.", counts.worker_starts)
    yield Gauge("poskernel_worker_alive", "1 where a worker lives.", engine.worker == "alive")
    jobs = Gauge("poskernel_jobs", "Computations that wait or run.", labels=["kind", "state"])
    for labels, number in open_by_kind(engine.open_jobs()).items():
        jobs.add_metric(labels, number)
    yield jobs
    ended = SummaryMetricFamily(
        "poskernel_job_seconds", "Computations that have ended; seconds since they were asked for.",
        labels=["kind", "how"],
    )  # fmt: skip
    for labels, tally in counts.tallies.items():
        ended.add_metric(labels, tally.jobs, tally.seconds)
    yield ended


def _filled(family: Family, values: Mapping[str, float]) -> Family:
    for label, value in values.items():
        family.add_metric([label], float(value))
    return family


def registry(admission: Admission, monitor: HealthMonitor) -> CollectorRegistry:
    """Return a registry with a server's metrics, and the process's memory, files and garbage."""
    disable_created_metrics()
    metrics = CollectorRegistry()
    for collector in (ServerCollector(admission, monitor), RUN_SECONDS):
        metrics.register(collector)
    for kind in (ProcessCollector, PlatformCollector, GCCollector):
        kind(registry=metrics)
    return metrics


def listen(address: tuple[str, int], numbers: CollectorRegistry) -> Callable[[], None]:
    """Serve the metrics at a host and port in a daemon thread; return a function that stops it.

    Raises:
        BadRequest: the address is not free.
    """
    host, port = address
    try:
        server, thread = start_http_server(port, host, registry=numbers)
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
