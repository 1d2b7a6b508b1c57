"""What Prometheus is told: parsed by its own parser, at an address of its own alone."""

import contextlib
import urllib.error
from types import SimpleNamespace

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from poskernel_core import __version__
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.settings import Settings
from serving.admission import Admission
from serving.health import HealthMonitor
from serving.metrics import RUN_SECONDS, listen, registry
from tests.support.bound import opened_as_linked
from tests.support.server import STREAM, answer, free_port, scope
from tools.recorded import open_page


def server(make):
    RUN_SECONDS.clear()
    admission = Admission(Settings(max_sessions=3))
    monitor = HealthMonitor(make, kept=0)
    return SimpleNamespace(admission=admission, numbers=registry(admission, monitor))


@pytest.fixture
def quiet(fresh_engine):
    return server(lambda: fresh_engine)


def told(server):
    found = {}
    for family in text_string_to_metric_families(generate_latest(server.numbers).decode()):
        assert family.documentation, family.name
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def test_what_is_told_before_anything_happened(quiet, fresh_engine):
    """All counters are there, as 0, so that their growth can be seen; no worker is started."""
    found = told(quiet)

    assert 1 == found["poskernel_build_info", ("version", __version__)]
    for name in ("sessions", "result_hits_total", "result_misses_total", "worker_starts_total",
                 "worker_alive", "store_entries"):  # fmt: skip
        assert 0 == found[f"poskernel_{name}",]
    assert 3 == found["poskernel_sessions_limit",]
    assert fresh_engine.store.limit == found["poskernel_store_limit_bytes",]
    assert 0 == found["poskernel_store_bytes",]
    assert 1 == found["poskernel_store_state", ("state", "writable")]
    for name, labels in (("refused_total", 4), ("jobs", 6), ("job_seconds_count", 9)):
        assert labels == sum(key[0] == f"poskernel_{name}" for key in found)
    assert 10**7 < found["process_resident_memory_bytes",]
    assert fresh_engine.worker_pid is None


def test_what_happened_is_told(quiet, fresh_engine):
    asked = scope(STREAM, "websocket")
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(quiet.admission.session(asked))
        quiet.admission.refusal(asked)
        for hit in (True, True, False):
            fresh_engine.counts.looked(hit)
        fresh_engine.counts.worker_starts += 1
        for seconds in (0.01, 0.3, 0.31, 99.0):
            RUN_SECONDS.labels("helix").observe(seconds)
        found = told(quiet)

    assert 3 == found["poskernel_sessions",]
    assert 1 == found["poskernel_refused_total", ("limit", "sessions")]
    assert 0 == found["poskernel_refused_total", ("limit", "sessions_each")]
    assert 2 == found["poskernel_result_hits_total",]
    assert 1 == found["poskernel_result_misses_total",]
    assert 1 == found["poskernel_worker_starts_total",]
    page = ("page", "helix")
    assert 2 == found["poskernel_run_seconds_bucket", ("le", "0.3"), page]
    assert 4 == found["poskernel_run_seconds_count", page]
    assert 99.62 == pytest.approx(found["poskernel_run_seconds_sum", page])


def test_an_address_of_its_own(quiet):
    port = free_port()
    stop = listen(("127.0.0.1", port), quiet.numbers)
    try:
        text = answer(f"http://127.0.0.1:{port}/metrics")[2]
        with pytest.raises(BadRequest, match=f"POSKERNEL_METRICS .*{port}"):
            listen(("127.0.0.1", port), quiet.numbers)
    finally:
        stop()

    assert "\nposkernel_sessions 0.0\n" in text
    with pytest.raises(urllib.error.URLError):
        answer(f"http://127.0.0.1:{port}/metrics")


def test_the_app_tells_how_long_it_ran(quiet, tmp_path, monkeypatch):
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    app = opened_as_linked("methods")
    open_page(app, "methods")
    found = told(quiet)

    assert ["Methods"] == [each.value for each in app.title]
    counts = {key: found[key] for key in found if key[0] == "poskernel_run_seconds_count"}
    assert {("poskernel_run_seconds_count", ("page", "methods")): 2} == counts
    assert 0 < found["poskernel_run_seconds_sum", ("page", "methods")] < 240
