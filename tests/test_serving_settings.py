"""What a host sets for the server: read once, and refused in one sentence that names it."""

import re
import subprocess
import sys

import pytest
from uvicorn.middleware import proxy_headers

from poskernel_core.common import limits, settings
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.renamed import MODELS, VARIABLES
from poskernel_core.storage.shipped import shipped
from serving.admission import ConnectionLimits
from tests.server import ROOT, environment

COUNTS = {
    "POSKERNEL_MAX_SESSIONS": limits.most_sessions,
    "POSKERNEL_MAX_SESSIONS_EACH": limits.most_sessions_each,
    "POSKERNEL_MAX_REQUESTS_PER_MINUTE": limits.most_requests_each,
}


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize(("said", "number"), [("0", 0), (" 12 ", 12), ("1000000", 1_000_000)])
def test_counts(monkeypatch, name, said, number):
    """0 is no limit; empty is as not set."""
    monkeypatch.delenv(name, raising=False)
    default = COUNTS[name]()
    assert default > 0
    monkeypatch.setenv(name, "")
    assert default == COUNTS[name]()

    monkeypatch.setenv(name, said)
    assert number == COUNTS[name]()


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("said", ["-1", "1.5", "many", "1000001", "9" * 5000, "٣", "0x10", "1_0"])
def test_what_is_no_count(monkeypatch, name, said):
    """One sentence, at the start and in the check of all."""
    monkeypatch.setenv(name, said)

    for read in (COUNTS[name], settings.check_settings, ConnectionLimits.of_host):
        with pytest.raises(BadRequest, match=name):
            read()


@pytest.mark.parametrize(
    "said", ["", "*", "127.0.0.1,::1", " 10.0.0.0/8 , fc00::/7,", "10.1.2.3, 2001:db8::1"]
)
def test_proxies_that_uvicorn_believes(monkeypatch, said):
    """As it reads them: nothing is left that it takes for a name."""
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", said)
    settings.check_settings()
    middleware = proxy_headers.ProxyHeadersMiddleware(None, said.strip())
    read = middleware.trusted_hosts
    assert set() == read.trusted_literals - {""}
    trusted = len(read.trusted_hosts) + len(read.trusted_networks) + read.always_trust
    assert len(settings.trusted_proxies()) == trusted


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("caddy", "caddy"),
        ("127.0.0.1 ::1", "127.0.0.1 ::1"),
        ("127.0.0.1,10.0.0.0/33", "10.0.0.0/33"),
        ("10.1.2.3/8", "10.1.2.3/8"),
        ("*,10.1.2.3", "*"),
        ("10.0.0.*", "10.0.0.*"),
    ],
)
def test_what_is_no_proxy(monkeypatch, said, wrong):
    """Uvicorn would trust nobody, without a word; we say so."""
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", said)
    with pytest.raises(BadRequest, match=f"FORWARDED_ALLOW_IPS .* got '{re.escape(wrong)}'"):
        settings.check_settings()


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("", None),
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("metrics.lab:65535", ("metrics.lab", 65535)),
        ("[::1]:9464", ("::1", 9464)),
    ],
)
def test_where_metrics_are_told(monkeypatch, said, found):
    """Nowhere unless it is said; an IPv6 address stands in brackets."""
    monkeypatch.setenv("POSKERNEL_METRICS", said)

    assert found == settings.metrics_address()


@pytest.mark.parametrize(
    "said",
    ["9464", ":9464", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x", "::1:9464",
     "[::1]", "[]:9464", "127.0.0.1:-5", "127.0.0.1:٣"],
)  # fmt: skip
def test_what_is_no_address(monkeypatch, said):
    """The sentence names the variable."""
    monkeypatch.setenv("POSKERNEL_METRICS", said)

    with pytest.raises(BadRequest, match="POSKERNEL_METRICS"):
        settings.check_settings()


@pytest.mark.parametrize(("said", "shown"), [("", True), ("1", True), ("0", False)])
def test_what_comes_with_the_project(monkeypatch, said, shown):
    """It is shown unless that is turned off; what is neither on nor off is refused."""
    monkeypatch.setenv("POSKERNEL_SHIPPED", said)

    settings.check_settings()
    assert shown == settings.use_shipped() == any(True for _ in shipped().headers())
    monkeypatch.setenv("POSKERNEL_SHIPPED", "maybe")
    with pytest.raises(BadRequest, match="POSKERNEL_SHIPPED"):
        settings.check_settings()


@pytest.mark.parametrize(("old", "new"), VARIABLES.items())
def test_an_old_name(monkeypatch, old, new):
    """The sentence says the new one; empty is as not set."""
    monkeypatch.setenv(old, " ")
    settings.check_settings()

    monkeypatch.setenv(old, "12")
    with pytest.raises(BadRequest) as error:
        settings.check_settings()
    assert f"{old} is called {new} now." == str(error.value)


@pytest.mark.parametrize("name", ["POSKERNEL_MODELS", "POSKERNEL_CORPORA"])
def test_paths_on_offer(monkeypatch, tmp_path, name):
    """What is there may be named, as may what is no path; a path that is not there is told."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    monkeypatch.setenv(name, f"gpt2, owner/model,{tmp_path}/there, ./there,,")
    settings.check_paths()

    for path in (f"{tmp_path}/none", "./none", "../none/below", "~/no/such/place"):
        monkeypatch.setenv(name, f"gpt2, {path}")
        with pytest.raises(BadRequest, match=f"{name} .*'{re.escape(path)}'"):
            settings.check_paths()
        settings.check_settings()  # a page whose model is gone says so by itself


@pytest.mark.parametrize(("old", "new"), MODELS.items())
def test_models_on_offer_go_by_their_names_of_today(monkeypatch, tmp_path, old, new):
    """A server says so at its start; a folder may be called so."""
    monkeypatch.setenv("POSKERNEL_MODELS", f"gpt2, {old}")
    with pytest.raises(BadRequest, match=f"^POSKERNEL_MODELS: '{old}' is called '{new}' now.$"):
        settings.check_paths()
    monkeypatch.chdir(tmp_path)
    (tmp_path / old).mkdir()
    settings.check_paths()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("POSKERNEL_PUBLIC", "yes"),  # which no part of the server itself asks for
        ("POSKERNEL_FRAME_ANCESTORS", "a; b"),
        ("POSKERNEL_MODELS", "gpt2,/no/such/model"),
        ("POSKERNEL_METRICS", "203.0.113.7:9464"),
    ],
)
def test_a_server_does_not_start_with_a_wrong_one(tmp_path, name, said):
    """One line, without a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "streamlit", "run", "serve.py", "--server.address=localhost"],
        env=environment(tmp_path) | {name: said},
        cwd=ROOT, text=True, timeout=120, capture_output=True, check=False,
    )  # fmt: skip

    assert 1 == done.returncode
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith(f"Expected {name} to ")
