"""What a host sets for the server: read once, and refused in one sentence that names it."""

import re
import subprocess
import sys

import pytest
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from poskernel_core.common.errors import BadRequest
from poskernel_core.common.settings import PUBLIC, Settings, check_paths, settings, variable
from tests.support.server import ROOT, environment

COUNTS = ("max_sessions", "max_sessions_each", "max_requests_per_minute")
READ_ELSEWHERE = {
    "POSKERNEL_CACHE", "POSKERNEL_MODELS", "POSKERNEL_CORPORA", "POSKERNEL_FRAME_ANCESTORS"
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    for name in Settings.model_fields:
        monkeypatch.delenv(variable(name), raising=False)


@pytest.mark.parametrize(
    ("name", "said", "value"),
    [
        *((name, said, int(said)) for name in COUNTS for said in ("0", " 12 ", "1000000")),
        ("max_jobs", "7", 7),
        ("cache_gb", "0.5", 0.5),
        ("shipped", "0", False),
        ("keep_texts", "0", False),
        ("public", " 1 ", True),
        ("read_only", "yes", True),
        ("device", " cuda:1 ", "cuda:1"),
        ("address", "http://lab.org/pk/", "http://lab.org/pk"),
        ("metrics", "127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("metrics", "metrics.lab:65535", ("metrics.lab", 65535)),
        ("metrics", "[::1]:9464", ("::1", 9464)),
    ],
)
def test_values(monkeypatch, name, said, value):
    default = getattr(settings(), name)
    monkeypatch.setenv(variable(name), " ")
    assert default == getattr(settings(), name) != value

    monkeypatch.setenv(variable(name), said)
    assert value == getattr(settings(), name)


WRONG = {
    **dict.fromkeys(COUNTS, ("-1", "1.5", "many", "1000001", "9" * 5000, "٣", "0x10")),
    "max_windows": ("0", "-1", "many"),
    "cache_gb": ("0", "nan", "inf", "1e7", "1e300", "x", "٨"),
    "checkpoint_seconds": ("x", "-1", "nan", "1e9"),
    "memory_gb": ("0", "much"),
    "max_texts_mb": ("0", "9" * 16),
    "max_jobs": ("0", "-1", "1.5", "many", "٣"),
    "allow_any_model": ("maybe",),
    "keep_texts": ("2",),
    "public": ("maybe",),
    "user_header": ("X Forwarded", "X-User:", "\u00dcser", "x" * 65),
    "shipped": ("maybe", "2"),
    "device": ("gpu", "cuda:x", "abacus"),
    "address": ("localhost:8501", "javascript:alert(1)", "http://", "http://[/?b", "http://a/?b"),
    "metrics": (
        "9464", ":9464", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x",
        "::1:9464", "[::1]", "[]:9464", "127.0.0.1:-5", "127.0.0.1:٣",
    ),
    "forwarded_allow_ips": (
        "caddy", "127.0.0.1 ::1", "127.0.0.1,10.0.0.0/33", "10.1.2.3/8", "*,10.1.2.3", "10.0.0.*",
    ),  # uvicorn would trust nobody, without a word
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "said"), [(name, said) for name, given in WRONG.items() for said in given]
)
def test_wrong_values(monkeypatch, name, said):
    monkeypatch.setenv(variable(name), said)

    with pytest.raises(BadRequest, match=rf"^Expected {variable(name)} to be .*, got '") as error:
        settings()
    assert said[:80] in str(error.value)
    assert "\n" not in str(error.value)


def test_proxies_that_uvicorn_believes(monkeypatch):
    """As it reads them: nothing is left that it takes for a name."""
    for said in ("", "*", "127.0.0.1,::1", " 10.0.0.0/8 , fc00::/7,", "10.1.2.3, 2001:db8::1"):
        monkeypatch.setenv("FORWARDED_ALLOW_IPS", said)
        settings()
        trusted = ProxyHeadersMiddleware(None, said.strip()).trusted_hosts
        assert set() == trusted.trusted_literals - {""}


def test_bounds_are_those_of_the_host(monkeypatch):
    """A public server has tighter ones, where the host says nothing else."""
    alone = settings()
    for number, name in enumerate(COUNTS, start=5):
        monkeypatch.setenv(variable(name), str(number))
    assert [5, 6, 7] == [getattr(settings(), name) for name in COUNTS]
    for name in COUNTS:
        monkeypatch.delenv(variable(name))
    monkeypatch.setenv("POSKERNEL_PUBLIC", "1")
    monkeypatch.setenv("POSKERNEL_MAX_JOBS", "1000")
    found = settings()
    assert 1000 == found.max_jobs
    for name, quota in PUBLIC.items():
        own = getattr(alone, name)
        assert own is None or quota <= own
        assert name == "max_jobs" or quota == getattr(found, name)


def test_the_documentation_has_every_variable():
    text = (ROOT / "docs" / "reference" / "environment.md").read_text("utf-8")
    rows = {
        name: [cell.strip() for cell in re.split(r"(?<!\\)\|", rest)[:-1]]
        for name, rest in re.findall(r"^\| `(\w+)` \| (.*)$", text.partition("## Compose")[0], re.M)
    }
    fields = {variable(name): (name, field) for name, field in Settings.model_fields.items()}

    ours = {name for name in rows if name.startswith("POSKERNEL_")}
    assert ours - READ_ELSEWHERE == fields.keys() - {"FORWARDED_ALLOW_IPS"}
    for each, (name, field) in fields.items():
        meaning, default, *more = rows[each]
        if isinstance(field.default, bool):
            assert default == ("1" if field.default else "off")
        elif isinstance(field.default, int):
            assert default == f"{field.default:,}"
        if name in PUBLIC:
            assert [meaning, *more] == [field.description, f"{PUBLIC[name]:,}"]


@pytest.mark.parametrize("name", ["POSKERNEL_MODELS", "POSKERNEL_CORPORA"])
def test_paths_on_offer(monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    monkeypatch.setenv(name, f"gpt2, owner/model,{tmp_path}/there, ./there,,")
    check_paths()

    for path in (f"{tmp_path}/none", "./none", "../none/below", "~/no/such/place"):
        monkeypatch.setenv(name, f"gpt2, {path}")
        with pytest.raises(BadRequest, match=rf"^Expected {name} to name .* nothing at '.*no"):
            check_paths()
        settings()  # a page whose model is gone says so by itself


@pytest.mark.slow
def test_a_server_does_not_start_with_a_wrong_one(tmp_path):
    name, said = "POSKERNEL_METRICS", "203.0.113.7:9464"
    done = subprocess.run(
        [sys.executable, "-m", "streamlit", "run", "serve.py", "--server.address=localhost"],
        env=environment(tmp_path) | {name: said},
        cwd=ROOT, text=True, timeout=120, capture_output=True, check=False,
    )  # fmt: skip

    assert 1 == done.returncode
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith(f"Expected {name} to ")
