"""A real server with limits, a log and metrics: what its visitors and its host see of them."""

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.support.server import PATIENCE, free_port, serve

pytestmark = pytest.mark.slow

HOME, SCHOOL, TRAIN = "203.0.113.7", "198.51.100.1", "2001:db8::1"
HOLDS = """
import sys
from websockets.sync.client import connect
with connect(sys.argv[1], additional_headers={"X-Forwarded-For": sys.argv[2]}) as socket:
    print("open", flush=True)
    socket.recv()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """It takes three sessions, two of them of one visitor."""
    root, port = tmp_path_factory.mktemp("doors"), free_port()
    settings = {
        "POSKERNEL_MAX_SESSIONS": "3",
        "POSKERNEL_MAX_SESSIONS_EACH": "2",
        "POSKERNEL_MAX_REQUESTS_PER_MINUTE": "50",
        "POSKERNEL_ACCESS_LOG": str(root / "access.log"),
        "POSKERNEL_METRICS": f"127.0.0.1:{port}",
    }
    with serve(root / "cache", root / "server.log", settings=settings) as started:
        yield SimpleNamespace(
            url=started.url,
            stream=f"{started.url.replace('http', 'ws', 1)}/_stcore/stream",
            metrics=f"http://127.0.0.1:{port}/metrics",
            log=root / "access.log",
        )


def get(address, visitor=None):
    """Status and text of an answer, errors included, as a visitor behind a proxy gets it."""
    headers = {} if visitor is None else {"X-Forwarded-For": visitor}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def enter(server, visitor):
    """Open a session; the server's proxy says who it is."""
    return connect(server.stream, additional_headers={"X-Forwarded-For": visitor})


def sessions(server):
    """How many are open, as the server's health says."""
    return json.loads(get(f"{server.url}/health")[1])["sessions"]


def until(server, number):
    """Wait until so many sessions are open."""
    end = time.monotonic() + PATIENCE
    while sessions(server) != number:
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_who_is_let_in(server):
    """Two of one visitor, three of all; whoever was refused gets in when one has left."""
    until(server, 0)
    with enter(server, HOME), enter(server, SCHOOL) as leaver:
        with enter(server, HOME):
            with pytest.raises(InvalidStatus) as own:
                enter(server, HOME)
            with pytest.raises(InvalidStatus) as full:
                enter(server, TRAIN)
            assert 503 == full.value.response.status_code
            assert b"This server is full: 3 pages are open" in full.value.response.body
            assert "30" == full.value.response.headers["Retry-After"]
            assert "default-src 'self'" in full.value.response.headers["Content-Security-Policy"]
            assert 503 == own.value.response.status_code  # what concerns all is said first
        until(server, 2)
        leaver.close()
        until(server, 1)
        with enter(server, HOME), pytest.raises(InvalidStatus) as own:
            enter(server, HOME)
        assert 429 == own.value.response.status_code
        assert b"2 pages are open from your address" in own.value.response.body
    until(server, 0)


def vanishes(server):
    """A reader whose program is killed."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, server.stream, HOME], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "open\n"
    until(server, 1)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()


def drain(socket):
    """Read until the server has closed."""
    while True:
        socket.recv(PATIENCE)


def breaks_the_protocol(server):
    """A reader who sends text, which Streamlit answers with an exception."""
    with enter(server, HOME) as socket:
        socket.send("text")
        with pytest.raises(ConnectionClosed):
            drain(socket)


def sends_rubbish(server):
    """A reader who sends bytes that are no message."""
    with enter(server, HOME) as socket:
        socket.send(b"\xff\xff\xff")
        with pytest.raises(ConnectionClosed):
            drain(socket)


def comes_from_elsewhere(server):
    """A page of another site that opens a socket here."""
    with pytest.raises(InvalidStatus):
        connect(
            server.stream, origin="https://elsewhere.org",
            additional_headers={"X-Forwarded-For": HOME},
        )  # fmt: skip


@pytest.mark.parametrize(
    "way", [vanishes, breaks_the_protocol, sends_rubbish, comes_from_elsewhere]
)
def test_however_a_session_ends_its_place_is_free(server, way):
    """As often as it happens."""
    until(server, 0)
    for _ in range(3):
        way(server)
        until(server, 0)
    with enter(server, HOME), enter(server, HOME):
        until(server, 2)
    until(server, 0)


def test_requests_are_bound_and_files_are_not(server):
    """A visitor who asks too often waits; health is told all the same, others are served."""
    visitor = "203.0.113.99"
    found = [get(f"{server.url}/no_such_page", visitor)[0] for _ in range(52)]
    assert [200] * 50 + [429] * 2 == found
    assert 200 == get(f"{server.url}/_stcore/health", visitor)[0]
    assert 200 == get(f"{server.url}/health", visitor)[0]
    assert 200 == get(f"{server.url}/helix", SCHOOL)[0]
    assert {200} == {get(f"{server.url}/helix")[0] for _ in range(60)}  # this machine


def test_metrics_have_a_port_of_their_own(server):
    """There they are true; at the public one there are none, not even Streamlit's."""
    until(server, 0)
    with enter(server, HOME):
        until(server, 1)
        told = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(get(server.metrics)[1])
            for sample in family.samples
        }

    assert 1 == told["poskernel_sessions",]
    assert 3 == told["poskernel_sessions_limit",]
    assert 0 == told["poskernel_worker_starts_total",]
    assert 404 == get(f"{server.url}/_stcore/metrics")[0]
    for path in ("/metrics", "/_stcore/metrics"):
        assert "poskernel_sessions" not in get(server.url + path)[1]


def test_the_log_tells_of_all(server):
    """Requests, refusals and sessions, under the address that the proxy named; no query."""
    visitor = "203.0.113.55"
    get(f"{server.url}/own_text?text=a+secret", visitor)
    with enter(server, visitor):
        pass
    until(server, 0)
    end = time.monotonic() + PATIENCE
    while True:
        lines = [json.loads(line) for line in server.log.read_text("ascii").splitlines()]
        own = [line for line in lines if line["visitor"] == visitor]
        if len(own) >= 2 or time.monotonic() > end:
            break
        time.sleep(0.02)

    page, session = own
    assert ("request", "GET", "/own_text", 200) == tuple(
        page[name] for name in ("event", "method", "path", "status")
    )
    assert ("session", "/_stcore/stream", 101) == tuple(
        session[name] for name in ("event", "path", "status")
    )
    assert "secret" not in server.log.read_text("ascii")
