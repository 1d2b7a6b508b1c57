"""Proxies of `deploy/` and of the documentation, real ones, before a server that echoes."""

import base64
import contextlib
import http.server
import json
import subprocess
import threading
from urllib.parse import urlsplit

import pytest

from tests.support import ROOT, until
from tests.support.proxies import CADDY, caddy, needs_caddy, needs_nginx, nginx
from tests.support.server import answer
from tests.test_docs import BLOCK

pytestmark = needs_caddy
WORDS = {"anna": "correct horse", "ben": "battery staple"}


class _Echo(http.server.BaseHTTPRequestHandler):
    """Answers with the headers that it was sent."""

    def do_GET(self):
        self.answer(200, json.dumps([[name.lower(), text] for name, text in self.headers.items()]))

    def answer(self, status, text="", **headers):
        self.send_response(status)
        for name, value in {"Content-Length": len(text.encode()), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        """Say nothing."""


class _Accounts(_Echo):
    """Answers as oauth2-proxy does: 202 and the name to whom it knows, else 401; a page to sign in.

    As there, that page leads back to what ``X-Auth-Request-Redirect`` names.
    """

    def do_GET(self):
        if urlsplit(self.path).path != "/oauth2/auth":
            self.answer(200, f"{self.path} {self.headers.get('X-Auth-Request-Redirect')}")
        elif "_oauth2_proxy=anna" in self.headers.get("Cookie", ""):
            self.answer(202, **{"X-Auth-Request-User": "anna"})
        else:
            self.answer(401)


@contextlib.contextmanager
def listening(handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("caddy")
    lines = [
        f"{name} "
        + subprocess.check_output([CADDY, "hash-password", "--plaintext", word], text=True)
        for name, word in WORDS.items()
    ]
    (folder / "users").write_text("".join(lines), "utf-8")
    with (
        listening(_Echo) as server,
        caddy(
            folder, "sign-in.Caddyfile", POSKERNEL_USERS=str(folder / "users"),
            POSKERNEL_UPSTREAMS=f"to {server}",
        ) as address,
    ):  # fmt: skip
        yield address


@pytest.fixture(scope="module")
def accounts(tmp_path_factory):
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
    """The headers that arrive, or the status of what is refused."""
    token = base64.b64encode(f"{user}:{word}".encode()).decode()
    signed = {"Authorization": f"Basic {token}"} if user else {}
    status, _, text = answer(proxy + path, **signed, **headers)
    return json.loads(text) if status == 200 else status


def test_a_password(proxy):
    for user, word in (("", ""), ("anna", "wrong"), ("carl", "correct horse")):
        assert 401 == arrived(proxy, user=user, word=word)
    forged = {"X_Forwarded_User": "ben", "X_Forwarded_For": "198.51.100.9"}
    headers = arrived(proxy, user="anna", word=WORDS["anna"], **forged)
    assert ["anna"] == [value for name, value in headers if name == "x-forwarded-user"]
    assert ["127.0.0.1"] == [value for name, value in headers if name == "x-forwarded-for"]
    assert "authorization" not in dict(headers)


def test_an_account(accounts):
    forged = {"X_Forwarded_User": "ben", "X_Auth_Request_User": "ben"}
    headers = arrived(accounts, "/helix", Cookie="_oauth2_proxy=anna", **forged)
    assert ["anna"] == [value for name, value in headers if name == "x-forwarded-user"]
    assert "ben" not in [value for _, value in headers]

    link = "/head?model=demo-gpt2&head=L2H6&query=400"
    without = answer(accounts + link, X_Auth_Request_Redirect="/else")[2]
    assert f"/oauth2/sign_in {link}" == without
    back = answer(f"{accounts}/oauth2/callback?code=1")[2]
    assert back.startswith("/oauth2/callback?code=1 ")


def test_a_token(tmp_path):
    """Programs need it, pages do not."""
    with (
        listening(_Echo) as server,
        caddy(
            tmp_path, "token.Caddyfile", POSKERNEL_TOKEN="2f0c", POSKERNEL_UPSTREAMS=f"to {server}"
        ) as proxy,
    ):
        check_token(proxy, "2f0c")
        assert 401 != arrived(proxy, "/helix")


@needs_nginx
def test_a_token_of_nginx(tmp_path):
    """By the block of the page on hosting, word for word but for addresses and token."""
    hosting = (ROOT / "docs" / "how-to" / "hosting.md").read_text("utf-8")
    (block,) = (code for kind, code in BLOCK.findall(hosting) if kind == "nginx")
    with (
        listening(_Echo) as server,
        nginx(tmp_path, block.replace("TOKEN", "2f0c"), server) as proxy,
    ):
        check_token(proxy, "2f0c")


def check_token(proxy, token):
    """Programs need it, and a server behind the proxy never sees it."""
    for path in ("/api/v1/models", "/api", "/mcp", "/mcp/", "/api/../api/v1/models"):
        for wrong in ("", "Bearer", f"Bearer {token.upper()}", "Bearer none", token):
            assert 401 == arrived(proxy, path, **({"Authorization": wrong} if wrong else {}))
        headers = dict(arrived(proxy, path, Authorization=f"Bearer {token}"))
        assert "authorization" not in headers
        assert "127.0.0.1" == headers["x-forwarded-for"]


@pytest.mark.parametrize(("short", "address"), [("0", "127.0.0.1"), ("1", "127.0.0.0")])
def test_the_access_log(tmp_path, short, address):
    log = tmp_path / "access.log"
    settings = {"POSKERNEL_ACCESS_LOG": f"file {log}", "POSKERNEL_SHORT_ADDRESSES": short}
    with (
        listening(_Echo) as server,
        caddy(tmp_path, "Caddyfile", POSKERNEL_UPSTREAMS=f"to {server}", **settings) as proxy,
    ):
        arrived(proxy, "/own_text?text=secret", Referer=f"{proxy}/own_text?text=secret")
        arrived(proxy, "/_stcore/upload_file/secret/5", Cookie="a=secret")
        until(lambda: log.is_file() and log.read_text("utf-8").count("\n") == 2, 60)
        lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]

    asked = [line["request"] for line in lines]
    assert ["/own_text", "/_stcore/upload_file"] == [each["uri"] for each in asked]
    assert {("GET", address)} == {(each["method"], each["remote_ip"]) for each in asked}
    assert {200} == {line["status"] for line in lines}
    assert all(line["duration"] >= 0 and line["size"] > 0 for line in lines)
    assert "secret" not in str(lines)


def test_errors_of_the_proxy_have_no_query(tmp_path):
    with caddy(tmp_path, "Caddyfile", POSKERNEL_UPSTREAMS="to 127.0.0.1:1") as proxy:
        assert 502 == arrived(proxy, "/own_text?text=secret")
    told = (tmp_path / "log").read_text("utf-8")
    assert '"/own_text"' in told
    assert "secret" not in told
