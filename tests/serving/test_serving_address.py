"""The server tells its own address and asks nobody for it."""

import contextlib
import http.client
import socket
import sys
import threading

import pytest

from serving import address
from tests.support.server import PATIENCE, environment, free_port, running

FOREIGN = {
    "Origin": "http://elsewhere.example",
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@pytest.mark.parametrize(
    ("listens", "named", "told"),
    [
        (None, None, "http://localhost:8501"),
        ("0.0.0.0", None, "http://localhost:8501"),
        ("::", None, "http://localhost:8501"),
        ("127.0.0.1", None, "http://127.0.0.1:8501"),
        ("::1", None, "http://[::1]:8501"),
        ("0.0.0.0", "kernels.example.org", "http://kernels.example.org:8501"),
    ],
)
def test_where_the_pages_are(monkeypatch, listens, named, told):
    found = {"server.address": listens, "browser.serverAddress": named or "localhost"}
    monkeypatch.setattr(address.config, "get_option", lambda name: found[name])
    monkeypatch.setattr(address.config, "is_manually_set", lambda name: named is not None)
    monkeypatch.setattr(address.server_util, "get_url", lambda host: f"http://{host}:8501")

    assert told == address.served_at()


@contextlib.contextmanager
def recorder():
    """A proxy's address, and what it was asked for; nobody gets an answer."""
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as door:

        def listen():
            with contextlib.suppress(OSError):
                while True:
                    caller, _ = door.accept()
                    asked.append(caller.recv(200))
                    caller.close()

        threading.Thread(target=listen, daemon=True).start()
        yield f"http://127.0.0.1:{door.getsockname()[1]}", asked


@pytest.mark.slow
def test_nobody_is_asked(tmp_path):
    """Whatever the server would ask of another host goes to a proxy, which notes it."""
    port, log = free_port(), tmp_path / "log"
    with recorder() as (proxy, asked):
        outside = {"NO_PROXY": "", "no_proxy": ""} | dict.fromkeys(
            ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy
        )
        serve = [sys.executable, "-m", "streamlit", "run", "serve.py", f"--server.port={port}",
                 "--server.address=0.0.0.0"]  # fmt: skip
        health = f"http://127.0.0.1:{port}/_stcore/health"
        with running(serve, health, log, environment(tmp_path) | outside):
            caller = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            caller.request("GET", "/_stcore/stream", headers=FOREIGN)
            assert 403 == caller.getresponse().status
            caller.close()

    assert [] == asked
    assert f"PosKernel is served at http://localhost:{port}\n" in log.read_text("utf-8")
