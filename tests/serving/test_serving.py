"""The server around the app: headers of responses, upkeep of memory, what starts it."""

import asyncio
import gc
import gzip
import re
import time
import urllib.request
import weakref
from importlib.resources import files

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from streamlit.testing.v1 import AppTest

import serving.site
from poskernel_core.common.errors import BadRequest
from serving.headers import security_headers
from serving.memory import collecting
from serving.page import INLINE, page_served
from serving.site import site_routes
from tests.support.server import answer, run_alone


@pytest.fixture
def url(server):
    return server.url


def policy():
    parts = security_headers()["Content-Security-Policy"].split("; ")
    return dict(part.split(" ", 1) for part in parts)


EARLY = re.compile(r'<link rel="modulepreload" crossorigin href="\./([\w./-]+)">')
ANSWERS = {
    "/": 200, "/helix?head=L1H1": 200, "/_stcore/health": 200, "/_stcore/host-config": 200,
    "/media/nothing.png": 404, "/_stcore/metrics": 404, "/%5Fstcore/metric%73/": 404,
    "/%2e%2e/etc/passwd": 400,
}  # fmt: skip


@pytest.mark.slow
def test_every_response_has_the_headers(url):
    script = "/" + re.search(r"\./(static/js/[\w.-]+)", page_served())[1]
    for path, status in (ANSWERS | {script: 200}).items():
        found, headers, _ = answer(url + path)
        assert status == found, path
        for name, value in security_headers().items():
            assert [value] == headers.get_all(name), (path, name)


@pytest.mark.slow
def test_the_rest_of_an_answer_waits_for_no_acknowledgement(url):
    """What has a body, on a connection that is kept: by Nagle's algorithm each takes 40 ms."""
    seconds = []
    with httpx2.Client(base_url=url) as http:
        for _ in range(60):  # a new connection acknowledges its first answers at once
            begun = time.monotonic()
            assert http.get("/_stcore/health").content
            seconds.append(time.monotonic() - begun)
    assert min(seconds[-20:]) < 0.03


def test_the_policy(monkeypatch):
    monkeypatch.delenv("POSKERNEL_FRAME_ANCESTORS", raising=False)
    monkeypatch.setattr(serving.site, "site", lambda: None)
    found = policy()

    assert "'self'" == found["default-src"] == found["connect-src"] == found["frame-ancestors"]
    assert "'none'" == found["object-src"]
    assert "'unsafe-inline'" not in found["script-src"]
    assert "'unsafe-eval'" not in found["script-src"]
    assert 2 == found["script-src"].count("sha256-")  # Streamlit's own, and ours


def test_the_site_of_the_documentation(monkeypatch, tmp_path):
    """Its links to a dashboard lead to this one; its scripts may run, and no others."""
    page = "<html><script>first()</script><script src='a.js'></script><p>{}</p></html>"
    link = '<a href="{}helix?head=L0H1">http://localhost:8501/</a>'
    told = page.format(link.format("http://localhost:8501/"))
    for name in ("index.html", "concepts/kernel.html", "concepts/index.html"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(told, "utf-8")
    monkeypatch.setattr(serving.site, "site", lambda: tmp_path)
    with TestClient(Starlette(routes=site_routes())) as client:
        for path, up in {
            "/docs/": "../",
            "/docs": "../",
            "/docs/concepts/kernel.html": "../../",
        }.items():
            assert page.format(link.format(up)) == client.get(path).text
        assert (
            "concepts/" == client.get("/docs/concepts", follow_redirects=False).headers["location"]
        )
        assert 404 == client.get("/docs/nothing.html").status_code
        assert 404 == client.get("/docs/%2e%2e/secret").status_code
    assert 3 == policy()["script-src"].count("sha256-")

    monkeypatch.setattr(serving.site, "site", lambda: None)
    with TestClient(Starlette(routes=site_routes())) as client:
        for path in ("/docs", "/docs/", "/docs/tutorial.html", "/docs/tutorial.md"):
            assert (200, True) == ((got := client.get(path)).status_code, "make docs" in got.text)
        assert "# Tutorial" in got.text
        assert 'href="index.html"' in got.text
        deep = client.get("/docs/how-to/models.html").text
        assert (
            '(<a href="../reference/models.md">../reference/models.md</a>#bundled-models)' in deep
        )
        assert 'href="../index.html"' in deep
        for path in ("/docs/nothing.html", "/docs/%2e%2e/README.md", "/docs/how-to"):
            assert (404, True) == ((got := client.get(path)).status_code, "make docs" in got.text)
    monkeypatch.setattr(serving.site, "script", lambda: tmp_path / "serve.py")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/odd.md").write_text("<script>alert(1)</script>", "utf-8")
    with TestClient(Starlette(routes=site_routes())) as client:
        assert "&lt;script&gt;" in client.get("/docs/odd.html").text


def test_who_may_frame_the_app(monkeypatch):
    """What the host says, and no other rule slips in."""
    for said in ("'none'", "'self'  https://lab.org https://*.hf.co:8000", "*"):
        monkeypatch.setenv("POSKERNEL_FRAME_ANCESTORS", said)
        assert " ".join(said.split()) == policy()["frame-ancestors"]
    for said in ("'self'; script-src *", "https://a.org,https://b.org", "'eval'"):
        monkeypatch.setenv("POSKERNEL_FRAME_ANCESTORS", said)
        with pytest.raises(BadRequest, match="POSKERNEL_FRAME_ANCESTORS"):
            security_headers()


@pytest.mark.slow
def test_what_pages_are_made_of(url):
    """Whatever it is opened at, a page holds our script before Streamlit's; it is asked for anew.

    What it asks for early is there and kept, as is Plotly, which is asked for with its version.
    """
    for path in ("/", "/helix?head=L1H1", "/no_such_page"):
        status, headers, body = answer(url + path)
        begins, _, ends = page_served().partition("</head>")
        assert 200 == status
        assert body.startswith(begins)
        assert body.endswith(ends)
        early = set(EARLY.findall(body.removeprefix(begins)))
        assert "no-cache" == headers["Cache-Control"]
        first, second = INLINE.findall(body)
        assert "BACKEND_BASE_URL" in first
        assert "BACKEND_BASE_URL" not in second
    scripts = {path for path in early if path.startswith("parts/")}
    assert scripts
    assert early - scripts
    for path in early:
        with urllib.request.urlopen(f"{url}/{path}") as found:
            assert "immutable" in found.headers["Cache-Control"], path
            script = found.read()
        if path in scripts:
            assert b"export default" in gzip.decompress(script)
    assert 404 == answer(f"{url}/parts/0123456789abcdef.js")[0]

    with urllib.request.urlopen(f"{url}/plotly.js?1") as found:
        headers, body = found.headers, found.read()
    text = files("plotly").joinpath("package_data/plotly.min.js").read_bytes()
    assert text == gzip.decompress(body)
    assert "immutable" in headers["Cache-Control"]
    assert headers["Content-Type"].startswith("text/javascript")


class Ring:
    """An object that only the collector can free."""

    def __init__(self):
        self.me = self


def test_garbage_is_collected_between_runs():
    async def see():
        async with collecting(0.05):
            frozen, gone = gc.get_freeze_count(), weakref.ref(Ring())
            before = gone() is not None
            for _ in range(600):
                if gone() is None:
                    break
                await asyncio.sleep(0.05)
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
