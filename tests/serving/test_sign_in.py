"""Sign-in at the proxy, with a real Caddy where there is one, in front of a server that echoes."""

import base64
import contextlib
import http.server
import json
import re
import subprocess
import threading
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest

from tests.support.caddy import CADDY, caddy, needs_caddy
from tests.support.server import ROOT

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


class _Accounts(_Echo):
    """Answers as oauth2-proxy does: 202 and the name to whom it knows, else 401; a page to sign in.

    As there, that page leads back to what ``X-Auth-Request-Redirect`` names.
    """

    def do_GET(self):
        """Answer a request."""
        body = b""
        if urlsplit(self.path).path == "/oauth2/auth":
            known = "_oauth2_proxy=anna" in self.headers.get("Cookie", "")
            self.send_response(202 if known else 401)
            if known:
                self.send_header("X-Auth-Request-User", "anna")
        else:
            self.send_response(200)
            body = f"{self.path} {self.headers.get('X-Auth-Request-Redirect')}".encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def listening(handler):
    """The address of a small server with such a handler."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    """The address of a Caddy that asks for a password of its own."""
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
    with (
        listening(_Echo) as server,
        caddy(
            folder, "sign-in.Caddyfile", POSKERNEL_USERS=str(users),
            POSKERNEL_UPSTREAMS=f"to {server}",
        ) as address,
    ):  # fmt: skip
        yield address


@pytest.fixture(scope="module")
def accounts(tmp_path_factory):
    """The address of a Caddy that asks oauth2-proxy, of which a stand-in is there."""
    folder = tmp_path_factory.mktemp("accounts")
    with (
        listening(_Echo) as server,
        listening(_Accounts) as asked,
        caddy(
            folder, "oauth2.Caddyfile", POSKERNEL_OAUTH2=asked, POSKERNEL_UPSTREAMS=f"to {server}"
        ) as address,
    ):
        yield address


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


@needs_caddy
def test_with_an_account(accounts):
    """The name that oauth2-proxy tells arrives, once, in place of what a stranger says."""
    forged = {"X-Forwarded-User": "ben", "X-Auth-Request-User": "ben"}
    headers = arrived(accounts, "/helix", Cookie="_oauth2_proxy=anna", **forged)

    assert ["anna"] == [value for name, value in headers if name == "x-forwarded-user"]
    assert "ben" not in [value for _, value in headers]


@needs_caddy
def test_without_an_account(accounts):
    """Nothing is passed on: there is a page to sign in, which leads back to the whole address."""
    link = "/head?model=demo-gpt2&head=L2H6&query=400"
    request = urllib.request.Request(accounts + link, headers={"X-Auth-Request-Redirect": "/else"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert f"/oauth2/sign_in {link}" == answer.read().decode()

    with urllib.request.urlopen(f"{accounts}/oauth2/callback?code=1", timeout=30) as answer:
        assert answer.read().startswith(b"/oauth2/callback?code=1 ")


@pytest.mark.parametrize("name", ["sign-in", "oauth2"])
def test_recipes_keep_what_the_plain_proxy_does(name):
    """Sticky sessions and compression, as in the configuration without sign-in."""
    words = (ROOT / "deploy" / f"{name}.Caddyfile").read_text("utf-8")
    plain = (ROOT / "deploy" / "Caddyfile").read_text("utf-8")

    kept = [line.strip() for line in plain.splitlines() if re.search(r"^\s+(\w|{\$)", line)]
    assert {"encode zstd gzip", "lb_policy cookie poskernel_replica"} < {*kept}
    assert [] == [line for line in kept if line not in words]
