"""What Prometheus is told: parsed by its own parser, at an address of its own alone."""

import contextlib
import re
import urllib.error
import urllib.request

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from streamlit.testing.v1 import AppTest

from poskernel_core import Engine, Store
from poskernel_core.common.errors import BadRequest
from serving.hidden import Hidden
from serving.limits import Bounds, Doors
from serving.metrics import ServerCollector, listen, registry
from serving.runs import BUCKETS, RUNS, Runs, Times
from serving.watch import Watch
from tests.support.asgi import STREAM, ask, scope
from tests.support.server import ROOT, free_port
from tools.recorded import open_page


@pytest.fixture
def engine(tmp_path):
    """An engine on an empty store."""
    made = Engine(Store(tmp_path))
    yield made
    made.store.close()


@pytest.fixture
def collector(engine):
    """What tells of a server where nothing has happened yet."""
    return ServerCollector(Doors(Bounds(sessions=3)), Watch(lambda: engine, kept=0), Runs())


def told(collector):
    """Every sample as Prometheus reads it, by name and labels."""
    text = generate_latest(registry(collector)).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def test_what_is_told_before_anything_happened(collector, engine):
    """All counters are there, as 0, so that their growth can be seen; no worker is started."""
    found = told(collector)

    assert 1 == found["poskernel_build_info", ("version", "0.1.0")]
    for name in ("sessions", "result_hits_total", "result_misses_total", "worker_starts_total",
                 "worker_alive", "store_entries"):  # fmt: skip
        assert 0 == found[f"poskernel_{name}",]
    assert 3 == found["poskernel_sessions_limit",]
    assert engine.store.limit == found["poskernel_store_limit_bytes",]
    assert 0 < found["poskernel_store_bytes",]
    assert 1 == found["poskernel_store_state", ("state", "writable")]
    assert 4 == sum(key[0] == "poskernel_refused_total" for key in found)
    assert 6 == sum(key[0] == "poskernel_jobs" for key in found)
    assert 9 == sum(key[0] == "poskernel_job_seconds_count" for key in found)
    assert 10**7 < found["process_resident_memory_bytes",]
    assert engine.worker_pid is None


def test_what_happened_is_told(collector, engine):
    """Sessions, refusals, looks, starts of the worker, runs of the script by page."""
    asked = scope(STREAM, "websocket")
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(collector.doors.session(asked))
        collector.doors.refusal(asked)
        engine.counts.looked(True)
        engine.counts.looked(True)
        engine.counts.looked(False)
        engine.counts.started_worker()
        for seconds in (0.01, 0.3, 0.31, 99.0):
            collector.runs.ended("helix", seconds)
        found = told(collector)

    assert 3 == found["poskernel_sessions",]
    assert 1 == found["poskernel_refused_total", ("limit", "sessions")]
    assert 0 == found["poskernel_refused_total", ("limit", "sessions_each")]
    assert 2 == found["poskernel_result_hits_total",]
    assert 1 == found["poskernel_result_misses_total",]
    assert 1 == found["poskernel_worker_starts_total",]
    page = ("page", "helix")
    up_to = {
        float(dict(key[1:])["le"]): value
        for key, value in found.items()
        if key[0] == "poskernel_run_seconds_bucket"
    }
    assert {*BUCKETS, float("inf")} == {*up_to}
    assert [1, 1, 2, 3, 3, 4] == [up_to[at] for at in (0.025, 0.2, 0.3, 0.5, 30, float("inf"))]
    assert 4 == found["poskernel_run_seconds_count", page]
    assert 99.62 == pytest.approx(found["poskernel_run_seconds_sum", page])


def test_all_that_is_told_is_explained(collector):
    """The table in the documentation names every metric of ours with its labels, and no other."""
    hosting = (ROOT / "docs" / "how-to" / "hosting.md").read_text("utf-8")
    table = hosting.split("\n## Metrics\n")[1]
    rows = re.findall(r"^\| (`poskernel_.*?`) \|", table, re.MULTILINE)
    named = {}
    for name, labels in re.findall(r"(poskernel_\w+)(?:\{([\w,]+)\})?", " ".join(rows)):
        named[name] = {*labels.split(",")} - {""}
    collector.runs.ended("helix", 0.1)
    declared = {}
    for name, *labels in told(collector):
        if name.startswith("poskernel_"):
            plain = re.sub("_(bucket|count|sum)$", "", name)
            declared.setdefault(plain, set()).update(label for label, _ in labels if label != "le")

    assert declared == named


def test_a_store_that_cannot_be_used(tmp_path):
    """The rest is told; what is not known is left out."""
    (tmp_path / "file").write_text("x")
    watch = Watch(lambda: Engine(Store(tmp_path / "file")), kept=0)
    found = told(ServerCollector(Doors(Bounds()), watch, Runs()))

    assert 1 == found["poskernel_store_state", ("state", "failing")]
    assert ("poskernel_sessions",) in found
    assert ("poskernel_store_bytes",) not in found
    assert str(tmp_path) not in str(found)


def test_an_address_of_its_own(collector):
    """Nobody else can listen there meanwhile; afterwards it is free again."""
    port = free_port()
    stop = listen(("127.0.0.1", port), registry(collector))
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        with pytest.raises(
            BadRequest, match=r"^Expected POSKERNEL_METRICS to be an address .*free"
        ):
            listen(("127.0.0.1", port), registry(collector))
    finally:
        stop()

    names = {family.name for family in text_string_to_metric_families(text)}
    assert {"poskernel_sessions", "poskernel_jobs", "process_resident_memory_bytes"} <= names
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5)


@pytest.mark.parametrize("host", ["203.0.113.7", "no.such.host.invalid"])
def test_an_address_elsewhere_is_refused(collector, host):
    """In one sentence that names it."""
    with pytest.raises(BadRequest, match=f"got {host}:9464"):
        listen((host, 9464), registry(collector))


async def open_door(asked, receive, send):
    """An app that answers every request."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"numbers"})


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/_stcore/metrics", 404),
        ("/_stcore/metrics/", 404),
        ("/base/_stcore/metrics", 404),
        ("/_stcore/health", 200),
        ("/metrics_of_heads", 200),
    ],
)
def test_streamlits_own_numbers_are_not_for_visitors(path, status):
    """Whatever the method."""
    for method in ("GET", "HEAD", "POST"):
        assert status == ask(Hidden(open_door), scope(path, method=method)).status


def test_percent_signs_open_no_way_round():
    """A path is compared as the app will read it."""
    client = TestClient(Hidden(open_door))

    assert 404 == client.get("/%5Fstcore/metric%73").status_code
    assert 200 == client.get("/%5Fstcore/healt%68").status_code


def test_the_app_tells_how_long_it_ran(tmp_path, monkeypatch):
    """Once a run, under the page's address."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    before = dict(RUNS.times)
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    for _ in range(2):
        open_page(app, "methods")

    assert ["Methods"] == [each.value for each in app.title]
    changed = {page: times for page, times in RUNS.times.items() if before.get(page) != times}
    assert ["methods"] == [*changed]
    more = sum(changed["methods"].counts) - sum(before.get("methods", Times()).counts)
    assert 2 == more
    assert 0 < changed["methods"].seconds < 240
