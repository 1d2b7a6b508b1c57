"""Requests of programs that are refused: other sites and hosts, files of the host, bad bodies."""

import gzip
import json
import logging
import os

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from poskernel_core.common.settings import Settings
from serving.admission import Admission
from serving.api import Api
from serving.callers import Callers
from tests.serving.test_api import FAR, HERE, JSON, MODEL, asked, client_of

PROXIED = ("203.0.113.7", 0)
"""As uvicorn tells who asks through a proxy that it trusts."""

ADDRESS, PROXY = "POSKERNEL_ADDRESS", "FORWARDED_ALLOW_IPS"
PUBLIC = {ADDRESS: "https://kernels.lab.org/heads"}

HOSTS = [
    # who asks, as which host, with what set, and whether it is let in
    (HERE, "localhost:8501", {}, True),
    (HERE, "LOCALHOST", {}, True),
    (HERE, "localhost.", {}, True),
    (HERE, "127.0.0.1:1", {}, True),
    (HERE, "127.8.8.8:8501", {}, True),
    (HERE, "[::1]:8501", {}, True),
    (HERE, "started.lab:8501", {}, True),
    (FAR, "kernels.lab.org", PUBLIC, True),
    (FAR, "kernels.lab.org:8501", PUBLIC, True),
    (HERE, "evil.org:8501", {}, False),
    (HERE, "evil.org:8501", PUBLIC, False),
    (HERE, "localhost.evil.org", {}, False),
    (HERE, "127.0.0.1.evil.org", {}, False),
    (HERE, "evil.org@localhost", {}, False),
    (HERE, "localhost@evil.org", {}, False),
    (HERE, "localhost/evil.org", {}, False),
    (HERE, "localhost evil.org", {}, False),
    (HERE, "localhost:8501:80", {}, False),
    (HERE, "0.0.0.0:8501", {}, False),
    (HERE, "2130706433", {}, False),
    (HERE, "[::1", {}, False),
    (HERE, "", {}, False),
    (FAR, "10.0.0.5:8501", {}, False),
    (FAR, "evil.kernels.lab.org", PUBLIC, False),
    (PROXIED, "any.lab.org", {PROXY: "10.0.0.1"}, True),  # the proxy says which hosts there are
    (PROXIED, "any.lab.org", {}, False),  # the default trusts whatever runs on this machine
    (FAR, "any.lab.org", {PROXY: "10.0.0.1"}, False),  # it did not come through it
    (PROXIED, "evil.org", {PROXY: "10.0.0.1"} | PUBLIC, False),  # the host has said its name
]

ORIGINS = [
    # the host and the headers of a browser, and whether it is let in
    ("localhost:8501", {}, True),
    ("localhost:8501", {"Origin": "http://localhost:8501", "Sec-Fetch-Site": "same-origin"}, True),
    ("localhost", {"Origin": "http://localhost"}, True),
    ("localhost:80", {"Origin": "http://localhost"}, True),
    ("localhost:8501", {"Sec-Fetch-Site": "none"}, True),
    ("kernels.lab.org", {"Origin": "https://kernels.lab.org"}, True),
    ("kernels.lab.org:8501", {"Origin": "https://kernels.lab.org"}, True),
    ("localhost:8501", {"Origin": "null"}, False),
    ("localhost:8501", {"Origin": ""}, False),
    ("localhost:8501", {"Origin": "http://evil.org"}, False),
    ("localhost:8501", {"Origin": "http://localhost:3000"}, False),
    ("localhost:8501", {"Origin": "http://localhost"}, False),
    ("localhost:8501", {"Origin": "http://localhost:8501.evil.org"}, False),
    ("localhost:8501", {"Origin": "http://evil.org@localhost:8501"}, False),
    ("localhost:8501", {"Origin": "file://localhost:8501"}, False),
    ("localhost:8501", {"Sec-Fetch-Site": "cross-site"}, False),
    ("localhost:8501", {"Sec-Fetch-Site": "same-site"}, False),
    ("localhost:8501", {"Sec-Fetch-Site": "anything"}, False),
]


@pytest.fixture
def web(shipped, shipped_only, unchecked, monkeypatch):
    monkeypatch.setenv("POSKERNEL_API", "on")
    return client_of(shipped)


@pytest.mark.parametrize(("client", "host", "settings", "let_in"), HOSTS)
def test_by_which_host_it_is_asked(shipped, monkeypatch, client, host, settings, let_in):
    """Else a name of another site, pointed at this machine, would be this server's own."""
    monkeypatch.setenv("POSKERNEL_API", "on")
    for name, text in settings.items():
        monkeypatch.setenv(name, text)
    web = client_of(shipped, client=client, started_as="started.lab")
    answers = [
        web.get("/api/v1/questions", headers={"Host": host, "X-Forwarded-For": "127.0.0.1"}),
        web.post("/api/v1/answers", headers={"Host": host} | JSON, content=asked()),
        web.get("/api/nothing", headers={"Host": host}),
    ]

    expected = [200, 200, 404] if let_in else [403] * 3
    assert expected == [each.status_code for each in answers]
    assert let_in or "POSKERNEL_ADDRESS" in answers[0].json()["detail"]


def test_two_hosts_are_none(web):
    headers = [("Host", "localhost"), ("Host", "localhost")]
    assert 403 == web.get("/api/v1/questions", headers=headers).status_code


@pytest.mark.parametrize(("host", "headers", "let_in"), ORIGINS)
def test_from_which_site_it_is_asked(web, monkeypatch, host, headers, let_in):
    monkeypatch.setenv(ADDRESS, PUBLIC[ADDRESS])
    for method, path in (
        ("GET", "/questions"), ("GET", "/jobs/x?wait=30"), ("POST", "/answers"),
        ("DELETE", "/jobs/x"),
    ):  # fmt: skip
        more = {"headers": JSON, "content": asked()} if method == "POST" else {"headers": {}}
        more["headers"] = {"Host": host} | headers | more["headers"]
        answer = web.request(method, f"/api/v1{path}", **more)
        assert let_in == (answer.status_code != 403)
        assert [] == [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; b=x",
             "application/jsonp", "text/plain; application/json", "application/json, text/plain"],
)  # fmt: skip
@pytest.mark.parametrize(("method", "path"), [("POST", "/answers"), ("DELETE", "/jobs/x")])
def test_a_form_of_another_site(web, kind, method, path):
    headers = {"Content-Type": kind} if kind else {}
    answer = web.request(method, f"/api/v1{path}", headers=headers, content=asked())
    assert "application/problem+json" == answer.headers["content-type"]
    assert 415 == answer.status_code
    bare = web.request(method, f"/api/v1{path}", headers=headers)
    assert (404 if (method, kind) == ("DELETE", None) else 415) == bare.status_code
    spelled = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert 200 == web.post("/api/v1/answers", headers=spelled, content=asked()).status_code


def test_other_methods(web):
    for path in ("/v1/answers", "/v1/questions", "/v1", "/v1/jobs/x", ""):
        preflight = {"Origin": "http://localhost", "Access-Control-Request-Method": "POST"}
        answer = web.options(f"/api{path}", headers=preflight)
        assert 405 == answer.status_code
        assert [] == [name for name in answer.headers if name.startswith("access-control")]
    for method in ("PUT", "PATCH", "DELETE", "GET", "TRACE"):
        assert 405 == web.request(method, "/api/v1/answers", headers=JSON).status_code


def test_a_web_socket(web):
    with pytest.raises(Exception), web.websocket_connect("/api/v1/questions"):  # noqa: B017, PT011
        pass


NAMES = (
    "/etc/passwd", "/etc", "/", "~", "~/models", "~root", "..", "../..", "./demo-gpt2",
    "../models/secret", "file:///etc/passwd", "file:/etc", "FILE://x", "/proc/self/environ",
    "/dev/zero", "\\\\host\\share", "C:\\models", "demo-gpt2/../..", "demo-gpt2/", "demo-gpt2\0",
    "/etc/passwd\0demo-gpt2", "weights.gguf", "results.zip", "pairs.json", "pairs.jsonl",
    "owner/any-model", "http://evil.org/model", "hf://owner/model", "$HOME", "%2e%2e/etc", "",
    " /etc", "sample.txt", "//localhost/share",
)  # fmt: skip
PLACES = {
    "model": ("model", lambda name: asked(model=name)),
    "corpus": ("run.corpus", lambda name: asked(run={"corpus": name})),
    "corpus by its fields": ("run.corpus", lambda name: asked(run={"corpus": {"name": name}})),
    "named text": (
        "run.corpus",
        lambda name: asked("own-text", params={"text_corpus": name, "text_item": "x"}),
    ),
    "conversations": ("run.corpus", lambda name: asked("conversations", run={"corpus": name})),
    "pinned head": (
        "model",
        lambda name: asked("compare-heads", params={"heads": f"L0H0,L0H1@{name}"}),
    ),
    "pinned corpus": (
        "run.corpus",
        lambda name: asked("compare-heads", params={"heads": f"L0H0,L0H1@{MODEL};corpus={name}"}),
    ),
}


@pytest.fixture
def looked_at(monkeypatch):
    """The names that anything looked at on the disk."""
    seen = []

    def watched(module, name):
        real = getattr(module, name)

        def look(path, *more, **options):
            seen.append(os.fspath(path) if isinstance(path, str | os.PathLike) else "")
            return real(path, *more, **options)

        monkeypatch.setattr(module, name, look)

    for name in ("stat", "lstat", "open", "scandir", "listdir"):
        watched(os, name)
    for name in ("isdir", "isfile", "exists"):
        watched(os.path, name)
    watched(__import__("builtins"), "open")
    return seen


@pytest.mark.parametrize("place", PLACES)
def test_files_of_the_host(web, looked_at, place):
    """Nothing is looked at, and what is there is answered like what is not."""
    field, body = PLACES[place]
    said = set()
    for name in NAMES:
        looked_at.clear()
        answer = web.post("/api/v1/answers", headers=JSON, content=body(name))
        seen, problem = {*looked_at}, answer.json()
        if "pin" in place and not name.strip():
            continue  # a pin without a model
        assert (404, field) == (answer.status_code, problem.get("field")), (name, problem)
        said.add(problem["detail"])
        known = {name, name.strip(), os.path.expanduser(name)} - {"", os.path.expanduser("~")}
        assert set() == {each for each in seen if known & {each, each.rstrip("/")}}, name
    (sentence,) = said
    assert sentence.startswith("There is no such ")


def test_a_text_is_no_path(web, looked_at):
    """It is a text, whatever it looks like."""
    for text in ("/etc/passwd", "~/notes.txt", "pairs.json"):
        body = asked("own-text", params={"text": text})
        answer = web.post("/api/v1/answers", headers=JSON, content=body)
        assert 409 == answer.status_code  # nothing is computed here
        assert set() == {text, os.path.expanduser(text)} & {*looked_at}


def test_other_models_where_the_host_allows_them(web, monkeypatch):
    answers = []
    for allowed in ("0", "1"):
        monkeypatch.setenv("POSKERNEL_ALLOW_ANY_MODEL", allowed)
        answers.append(web.post("/api/v1/answers", headers=JSON, content=asked(model="/none")))
    assert "There is no such model here" in answers[0].json()["detail"]
    assert "There is no such model here" not in answers[1].json()["detail"]


def test_paths_are_told_on_this_machine_alone(shipped, monkeypatch, tmp_path):
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("POSKERNEL_MODELS", str(tmp_path / "empty"))
    monkeypatch.setenv("POSKERNEL_API", "on")
    monkeypatch.setenv(ADDRESS, "http://kernels.lab.org")
    said = []
    for client, host in ((HERE, "localhost"), (FAR, "kernels.lab.org")):
        web = client_of(shipped, client=client)
        answer = web.post("/api/v1/answers", headers=JSON | {"Host": host},
                          content=asked(model=str(tmp_path / "empty")))  # fmt: skip
        models = web.get("/api/v1/models", headers={"Host": host}).json()
        (listed,) = (each["problem"] for each in models if "problem" in each)
        assert answer.json()["detail"] == listed
        said.append(listed)
    assert str(tmp_path) in said[0]
    assert str(tmp_path) not in said[1]
    assert "'…'" in said[1]


DEEP = "[" * 500_000
BODIES = {
    "nothing": (b"", 400),
    "no JSON": (b"question=etc", 400),
    "half of it": (asked()[:20], 400),
    "a list": (b"[]", 400),
    "a number": (b"4", 400),
    "null": (b"null", 400),
    "a byte order mark": (b"\xef\xbb\xbf" + asked(), 400),
    "another encoding": (asked().decode().encode("utf-16"), 400),
    "half a character": (asked(head="x").replace(b"x", b"\\ud800"), 400),
    "NaN": (asked(params={"skip": 1}).replace(b"1", b"NaN"), 400),
    "infinity": (asked(params={"skip": 1}).replace(b"1", b"-Infinity"), 400),
    "more than any number": (asked(params={"skip": 1}).replace(b"1", b"1e999"), 400),
    "a number of 5,000 digits": (asked(params={"skip": 1}).replace(b"1", b"1" * 5000), 400),
    "a field twice": (b'{"question":"etc","question":"etc","model":"demo-gpt2"}', 400),
    "a parameter twice": (b'{"question":"etc","model":"m","params":{"skip":1,"skip":2}}', 400),
    "a field of its own": (asked(mine=1), 400),
    "a megabyte of nesting": (DEEP.encode(), 400),
    "nested parameters": (asked(params={"skip": 1}).replace(b"1", b"[" * 900 + b"]" * 900), 400),
    "more than a megabyte": (asked(head="x" * 10**6), 413),
}
WRONG = {
    # what is wrong, in which field, and the class of the error
    "no model": ({"model": None}, "model", "InvalidField", 400),
    "a number for a name": ({"model": 4}, "model", "InvalidField", 400),
    "another question": ({"question": "nothing"}, "question", "UnknownAnalysis", 404),
    "another model": ({"model": "nothing"}, "model", "UnknownModel", 404),
    "another parameter": ({"params": {"skp": 4}}, "params.skp", "InvalidField", 400),
    "a parameter out of bounds": ({"params": {"skip": 99}}, "params.skip", "InvalidField", 400),
    "a text for a number": ({"params": {"skip": "4"}}, "params.skip", "InvalidField", 400),
    "another field of the run": ({"run": {"contxt": 4}}, "run", "UnknownField", 400),
    "a parameter in the run": ({"run": {"skip": 4}}, "run", "UnknownField", 400),
    "an argument in the run": ({"run": {"files": True}}, "run", "UnknownField", 400),
    "a model in the run": ({"run": {"model": "/etc"}}, "run", "UnknownField", 400),
    "statistics in the run": ({"run": {"gather": ["keys"]}}, "run", "UnknownField", 400),
    "a precision": ({"run": {"dtype": "int4"}}, "run.dtype", "InvalidField", 400),
    "a corpus of numbers": ({"run": {"corpus": [1]}}, "run.corpus", "InvalidField", 400),
    "a revision": ({"revision": "v9"}, "", "UnknownModel", 404),
    "a revision of a corpus": (
        {"run": {"corpus": {"name": "wikitext", "revision": "refs/pr/1"}}},
        "run.corpus", "UnknownCorpus", 404,
    ),
    "windows beyond any number": ({"run": {"windows": 10**30}}, "", "BadRequest", 400),
    "a head that is none": ({"head": "first"}, "", "BadRequest", 400),
    "a head beyond": ({"head": "L99H99"}, "", "BadRequest", 400),
    "a position beyond": ({"query": 10**6}, "", "BadRequest", 400),
}  # fmt: skip


def one_sentence(answer):
    problem = answer.json()
    assert "application/problem+json" == answer.headers["content-type"]
    assert answer.status_code == problem["status"]
    assert "\n" not in problem["detail"]
    assert "Traceback" not in problem["detail"]
    assert 10 < len(problem["detail"]) < 1000
    return problem


@pytest.mark.parametrize("body", BODIES)
def test_bodies(web, body):
    content, status = BODIES[body]
    answer = web.post("/api/v1/answers", headers=JSON, content=content)
    assert status == answer.status_code
    one_sentence(answer)


def test_a_body_is_read_to_a_megabyte_whatever_is_said_of_it(web):
    sent = []

    def endless():
        while True:
            sent.append(1)
            yield b" " * 10**5

    answer = web.post("/api/v1/answers", headers=JSON, content=endless())
    assert 411 == one_sentence(answer)["status"]
    assert len(sent) < 100
    packed = gzip.compress(asked())
    answer = web.post(
        "/api/v1/answers", headers=JSON | {"Content-Encoding": "gzip"}, content=packed
    )
    assert 415 == one_sentence(answer)["status"]


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_a_request(web, what):
    fields, place, error, status = WRONG[what]
    answer = web.post("/api/v1/answers", headers=JSON, content=asked(**fields))
    problem = one_sentence(answer)
    assert (status, error) == (answer.status_code, problem["error"])
    assert problem.get("field", "").startswith(place)


@pytest.mark.parametrize(
    "path",
    ["/answers/typed-0", "/answers/..", f"/answers/{'0' * 16}-{'0' * 64}", "/jobs/x",
     "/questions/x", "/questions/..%2fmodels", "/nothing", ""],
)  # fmt: skip
def test_what_is_not_there(web, path):
    assert 404 == one_sentence(web.get(f"/api/v1{path}"))["status"]


@pytest.mark.parametrize(
    "queries",
    [
        "?wait=31",
        "?wait=-1",
        "?wait=x",
        "?wait=1&wait=2",
        "?wiat=1",
        "?wait=٣",
        "?wait=1e1",
        "?wait=",
    ],
)
def test_what_follows_the_address(web, queries):
    answer = web.post(f"/api/v1/answers{queries}", headers=JSON, content=asked())
    assert 400 == one_sentence(answer)["status"]


def test_too_many_requests():
    """They are counted like those of readers, by their address."""
    limits = Settings(max_requests_per_minute=1)
    guarded = Admission(limits).guard(PlainTextResponse("let in"))
    web = TestClient(guarded, "http://localhost", client=FAR)
    assert 200 == web.get("/api/v1/models").status_code
    answer = web.get("/api/v1/models")
    problem = one_sentence(answer)
    assert 429 == problem["status"]
    assert ("Busy", "Too Many Requests") == (problem["error"], problem["title"])
    assert 0 < int(answer.headers["retry-after"]) <= 60


def test_what_nobody_expected(shipped, monkeypatch, caplog):
    monkeypatch.setenv("POSKERNEL_API", "on")
    monkeypatch.setattr(Api, "models", None)
    monkeypatch.setattr("serving.problems.LOG", logging.getLogger("tests"))  # of no server
    api = Api(lambda: shipped, Callers())
    web = TestClient(api.route(), "http://localhost", raise_server_exceptions=False)
    problem = one_sentence(web.get("/api/v1/models"))
    assert (500, "ComputeFailed") == (problem["status"], problem["error"])
    assert "NoneType" in caplog.text
    assert "NoneType" not in json.dumps(problem)
