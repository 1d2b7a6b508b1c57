"""A real server with limits and metrics: what its clients and its host see of them."""

import json
import signal
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest
from playwright.sync_api import expect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.support import until as wait_until
from tests.support.server import PATIENCE, answer, free_port, serve
from tests.support.visit import visit

# pytest runs tests of one browser together: where all have it, module fixtures are made once.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("browser_name")]

HOME, SCHOOL, TRAIN = "203.0.113.7", "198.51.100.1", "2001:db8::1"
HOLDS = """
import sys
from websockets.sync.client import connect
named = {"X-Forwarded-For": sys.argv[2]}
with connect(sys.argv[1], additional_headers=named, open_timeout=None) as socket:
    print("open", flush=True)
    socket.recv()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root, port = tmp_path_factory.mktemp("doors"), free_port()
    settings = {
        "POSKERNEL_MAX_SESSIONS": "3",
        "POSKERNEL_MAX_SESSIONS_EACH": "2",
        "POSKERNEL_MAX_REQUESTS_PER_MINUTE": "50",
        "POSKERNEL_METRICS": f"127.0.0.1:{port}",
    }
    with serve(root / "cache", root / "server.log", settings=settings) as started:
        yield SimpleNamespace(
            url=started.url,
            stream=f"{started.url.replace('http', 'ws', 1)}/_stcore/stream",
            metrics=f"http://127.0.0.1:{port}/metrics",
        )


def enter(server, client, **options):
    named = {"X-Forwarded-For": client}
    return connect(server.stream, additional_headers=named, open_timeout=PATIENCE, **options)


def until(server, number):
    """Wait for so many open pages."""
    health = f"{server.url}/health"
    wait_until(lambda: json.loads(answer(health)[2])["sessions"] == number, PATIENCE)


def test_who_is_admitted(server):
    until(server, 0)
    with enter(server, HOME), enter(server, SCHOOL) as leaver:
        with enter(server, HOME):
            with pytest.raises(InvalidStatus) as own:
                enter(server, HOME)
            with pytest.raises(InvalidStatus) as full:
                enter(server, TRAIN)
            assert 503 == own.value.response.status_code  # what concerns all is said first
            assert 503 == full.value.response.status_code
            assert b"This server is full: 3 pages are open" in full.value.response.body
            assert "30" == full.value.response.headers["Retry-After"]
            assert "default-src 'self'" in full.value.response.headers["Content-Security-Policy"]
        until(server, 2)
        leaver.close()
        until(server, 1)
        with enter(server, HOME), pytest.raises(InvalidStatus) as own:
            enter(server, HOME)
        assert 429 == own.value.response.status_code
    until(server, 0)


FLASH = """
new MutationObserver(() => {
  if (document.body?.innerText.includes("Page not found")) window.flashed = true;
}).observe(document, { childList: true, subtree: true, characterData: true });
"""


@pytest.mark.browser
def test_a_reader_is_told_and_gets_in_later(server, new_context):
    """Also in a second tab of who is in, who can reload; a page that is closed makes room.

    The first link to a page finds it at once.
    """
    until(server, 0)
    with enter(server, HOME), enter(server, SCHOOL):
        small = f"{server.url}/methods"
        first = new_context().new_page()
        first.add_init_script(FLASH)
        visit(first, small)
        assert not first.evaluate("window.flashed === true")
        tab, other = first.context.new_page(), new_context().new_page()
        for page in (tab, other):
            answer = page.goto(small)
            assert (503, "30") == (answer.status, answer.headers["retry-after"])
            expect(page.get_by_text("This server is full: 3 pages are open")).to_be_visible()
            expect(page).to_have_title("PosKernel")
        assert 200 == first.reload().status
        expect(first.get_by_role("heading", name="Methods", level=1)).to_be_visible()
        first.close()
        until(server, 2)
        other.get_by_role("link", name="Try again").click()
        expect(other.get_by_role("heading", name="Methods", level=1)).to_be_visible()


def vanishes(server):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, server.stream, HOME], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "open\n"
    until(server, 1)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()


def sends(server, message):
    with enter(server, HOME) as socket:
        socket.send(message)
        with pytest.raises(ConnectionClosed):
            [*iter(lambda: socket.recv(PATIENCE), None)]


def comes_from_elsewhere(server):
    with pytest.raises(InvalidStatus):
        enter(server, HOME, origin="https://elsewhere.org")


@pytest.mark.parametrize(
    "way",
    [
        vanishes,
        partial(sends, message="text"),
        partial(sends, message=b"\xff\xff\xff"),
        comes_from_elsewhere,
    ],
)
def test_however_a_session_ends_its_place_is_free(server, way):
    until(server, 0)
    for _ in range(3):
        way(server)
        until(server, 0)
    with enter(server, HOME), enter(server, HOME):
        until(server, 2)
    until(server, 0)


def test_requests_are_limited_and_files_are_not(server):
    def status(path, client=None):
        named = {"X_Forwarded_For": client} if client else {}
        return answer(server.url + path, **named)[0]

    client = "203.0.113.99"
    assert [200] * 50 + [429] * 2 == [status("/no_such_page", client) for _ in range(52)]
    assert 200 == status("/_stcore/health", client) == status("/health", client)
    assert 200 == status("/helix", SCHOOL)
    assert {200} == {status("/helix") for _ in range(60)}  # this machine


def test_metrics_have_a_port_of_their_own(server):
    until(server, 0)
    with enter(server, HOME):
        until(server, 1)
        text = answer(server.metrics)[2]

    assert "\nposkernel_sessions 1.0\n" in text
    assert "\nposkernel_sessions_limit 3.0\n" in text
    assert 404 == answer(f"{server.url}/_stcore/metrics")[0]
    assert "poskernel_sessions" not in answer(f"{server.url}/metrics")[2]
