"""The server around the app: headers of responses, upkeep of memory, what starts it."""

import asyncio
import gc
import re
import subprocess
import sys
import urllib.error
import urllib.request
import weakref

import pytest
from streamlit.testing.v1 import AppTest

from poskernel_core.common.errors import BadRequest
from serving import memory
from serving.headers import security_headers
from serving.page import INLINE, page_served
from tests.support.alone import run_alone
from tests.support.server import ROOT, environment, serve

NONE = "'none'"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A server with an empty cache: nothing is computed here."""
    root = tmp_path_factory.mktemp("serving")
    with serve(root / "cache", root / "server.log") as server:
        yield server.url


def answer(address, method="GET"):
    """The status and the headers of a response, errors included."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method=method)) as found:
            return found.status, found.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers


def policy(headers):
    """The content security policy as a table."""
    parts = headers["Content-Security-Policy"].split("; ")
    return dict(part.split(" ", 1) for part in parts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/helix?head=L1H1", 200),
        ("/_stcore/health", 200),
        ("/_stcore/host-config", 200),
        ("/static/js", 200),
        ("/media/nothing.png", 404),
        ("/%2e%2e/etc/passwd", 400),
    ],
)
def test_every_response_has_the_headers(url, path, status):
    """Pages, Streamlit's own addresses, its files, refusals."""
    if path == "/static/js":
        with urllib.request.urlopen(url) as page:
            path = "/" + re.search(r"\./(static/js/[\w.-]+)", page.read().decode())[1]

    found, headers = answer(url + path)

    assert status == found
    for name, value in security_headers().items():
        assert [value] == headers.get_all(name), name


def test_the_policy(monkeypatch):
    """Only this server's own files and the components' blobs; no inline script, no eval."""
    monkeypatch.delenv("POSKERNEL_FRAME_ANCESTORS", raising=False)
    headers = security_headers()
    found = policy(headers)

    assert "'self'" == found["default-src"] == found["connect-src"] == found["frame-ancestors"]
    assert NONE == found["object-src"]
    assert "'unsafe-inline'" not in found["script-src"]
    assert "'unsafe-eval'" not in found["script-src"]
    assert 2 == found["script-src"].count("sha256-")  # Streamlit's own, and where the server is
    assert "nosniff" == headers["X-Content-Type-Options"]
    assert "SAMEORIGIN" == headers["X-Frame-Options"]


@pytest.mark.parametrize(
    ("said", "ancestors", "older"),
    [
        ("", "'self'", "SAMEORIGIN"),
        ("'none'", "'none'", "DENY"),
        ("'self'  https://lab.org https://*.hf.co:8000", "'self' https://lab.org https://*.hf.co:8000",
         None),
        ("*", "*", None),
    ],
)  # fmt: skip
def test_who_may_frame_the_app(monkeypatch, said, ancestors, older):
    """The host's choice goes into the policy, and into the older header if it can say it."""
    monkeypatch.setenv("POSKERNEL_FRAME_ANCESTORS", said)
    headers = security_headers()

    assert ancestors == policy(headers)["frame-ancestors"]
    assert older == headers.get("X-Frame-Options")


@pytest.mark.parametrize("said", ["'self'; script-src *", "https://a.org,https://b.org", "'eval'"])
def test_no_other_rule_slips_in(monkeypatch, said):
    """What is no list of sources is refused, in one sentence that names the variable."""
    monkeypatch.setenv("POSKERNEL_FRAME_ANCESTORS", said)

    with pytest.raises(BadRequest, match=r"^Expected POSKERNEL_FRAME_ANCESTORS to be .*, got .*"):
        security_headers()


@pytest.mark.parametrize("file", ["Makefile", "Dockerfile", "tests/server.py"])
def test_what_starts_the_app_starts_it_with_the_headers(file):
    """`app.py` alone would be served without them."""
    words = (ROOT / file).read_text("utf-8")

    assert re.search(r"run\W+serve\.py", words)
    assert not re.search(r"run\W+app\.py", words)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/", "/helix?head=L1H1", "/no_such_page"])
def test_a_page_knows_its_server(url, path):
    """Whatever it is opened at and in whatever encoding: whole, and allowed by the policy."""
    asked = urllib.request.Request(url + path, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(asked) as found:
        body = found.read()
    _, head = answer(url + path, "HEAD")

    assert page_served().encode() == body
    assert str(len(body)) == found.headers["Content-Length"] == head["Content-Length"]
    assert None is found.headers["Content-Encoding"] is found.headers["ETag"]
    first, second = INLINE.findall(body.decode())
    assert "BACKEND_BASE_URL" in first
    assert "BACKEND_BASE_URL" not in second


@pytest.mark.slow
def test_a_wrong_variable_ends_the_start(tmp_path):
    """One sentence, no traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "streamlit", "run", "serve.py", "--server.address=localhost"],
        env=environment(tmp_path) | {"POSKERNEL_FRAME_ANCESTORS": "a; b"},
        cwd=ROOT, text=True, timeout=120, capture_output=True,
    )  # fmt: skip

    assert 1 == done.returncode
    assert done.stderr.strip().startswith("Expected POSKERNEL_FRAME_ANCESTORS")
    assert 1 == len(done.stderr.strip().splitlines())


class Ring:
    """An object that only the collector can free."""

    def __init__(self):
        self.me = self


def test_memory_is_tended_between_runs(monkeypatch):
    """What lives long is set aside, garbage goes soon; afterwards all is as it was."""
    monkeypatch.setattr(memory, "PAUSE", 0.05)

    async def see():
        async with memory.upkeep(None):
            frozen, gone = gc.get_freeze_count(), weakref.ref(Ring())
            before = gone() is not None
            await asyncio.sleep(0.5)
            return frozen, before, gone() is None

    gc.disable()
    try:
        frozen, before, after = run_alone(see())
    finally:
        gc.enable()

    assert frozen > 10_000
    assert (True, True) == (before, after)
    assert 0 == gc.get_freeze_count()


def test_no_collection_after_a_run():
    """Streamlit's own collection, which holds up the other readers, is off."""
    seen = []

    def note(phase, info):
        seen.append(info["generation"])

    app = AppTest.from_string("import streamlit as st; st.title('x')", default_timeout=60)
    gc.disable()
    gc.callbacks.append(note)
    try:
        app.run()
    finally:
        gc.callbacks.remove(note)
        gc.enable()

    assert ["x"] == [each.value for each in app.title]
    assert [] == seen


@pytest.mark.slow
def test_the_server_tends_its_memory(tmp_path):
    """`serve.py` sets aside what lives long before it answers."""
    code = (
        "import gc, serve; from starlette.testclient import TestClient\n"
        "with TestClient(serve.app) as client:\n"
        "    print(client.get('/_stcore/health').status_code, gc.get_freeze_count())"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, env=environment(tmp_path),
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    status, frozen = map(int, done.stdout.split()[-2:])

    assert 200 == status
    assert frozen > 50_000
