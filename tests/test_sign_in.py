"""Sign-in at the proxy, with a real Caddy where there is one, in front of a server that echoes."""

import base64
import http.server
import json
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from tests.server import ROOT

CADDY = shutil.which("caddy")
needs_caddy = pytest.mark.skipif(CADDY is None, reason="Caddy is not installed")
WORDS = {"anna": "correct horse", "ben": "battery staple"}


class _Echo(http.server.BaseHTTPRequestHandler):
    """Answers with the headers that it was sent."""

    def do_GET(self):
        """Answer a request."""
        body = json.dumps([[name.lower(), value] for name, value in self.headers.items()]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


def free_port():
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    """The address of a Caddy with the configuration that the project ships."""
    folder = tmp_path_factory.mktemp("caddy")
    hashes = {
        name: subprocess.run(
            [CADDY, "hash-password", "--plaintext", word], capture_output=True, text=True,
            check=True,
        ).stdout.strip()
        for name, word in WORDS.items()
    }  # fmt: skip
    users = folder / "users"
    users.write_text("".join(f"{name} {text}\n" for name, text in hashes.items()), "utf-8")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = free_port()
    with (folder / "log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [CADDY, "run", "--adapter", "caddyfile", "--config", "deploy/sign-in.Caddyfile"],
            cwd=ROOT,
            env=os.environ | {
                "POSKERNEL_SITE": f"http://127.0.0.1:{port}",
                "POSKERNEL_USERS": str(users),
                "POSKERNEL_UPSTREAMS": f"to 127.0.0.1:{server.server_address[1]}",
                "HOME": str(folder),
            },
            stdout=log, stderr=log,
        )  # fmt: skip
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        assert process.poll() is None, (folder / "log").read_text("utf-8")
        time.sleep(0.1)
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait(60)
    server.shutdown()
    server.server_close()


def arrived(proxy, path="/", user="", word="", **headers):
    """What of a request arrives at the server."""
    request = urllib.request.Request(proxy + path, headers=headers)
    if user:
        token = base64.b64encode(f"{user}:{word}".encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@needs_caddy
@pytest.mark.parametrize(("user", "word"), [("", ""), ("anna", "wrong"), ("carl", "correct horse")])
def test_without_a_password(proxy, user, word):
    """Nothing is passed on."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        arrived(proxy, user=user, word=word)

    assert 401 == refused.value.code
    refused.value.close()


@needs_caddy
def test_with_a_password(proxy):
    """The name arrives once, the password does not; what a stranger says of himself is replaced."""
    forged = {"X-Forwarded-User": "ben", "X-Forwarded-For": "198.51.100.9"}
    headers = arrived(proxy, user="anna", word=WORDS["anna"], **forged)

    assert ["anna"] == [value for name, value in headers if name == "x-forwarded-user"]
    assert ["127.0.0.1"] == [value for name, value in headers if name == "x-forwarded-for"]
    assert "authorization" not in dict(headers)


def test_the_recipe_keeps_what_the_plain_proxy_does():
    """Sticky sessions and compression, as in the configuration without sign-in."""
    words = (ROOT / "deploy" / "sign-in.Caddyfile").read_text("utf-8")

    for line in ("encode zstd gzip", "lb_policy cookie"):
        assert line in words
    assert "header_up X-Forwarded-User {http.auth.user.id}" in words
