"""Answers for programs over HTTP: stored ones in every form, jobs, and whose they are."""

import io
import json
import threading
from contextlib import ExitStack

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from starlette.applications import Starlette
from starlette.testclient import TestClient

import poskernel_core as pk
from pages.shared.selection.session import person, present
from poskernel_core.analyses import ANALYSES
from poskernel_core.client import CLIENT
from poskernel_core.engine.engine import Engine
from poskernel_core.engine.provenance import from_line
from poskernel_core.export.files import to_json
from poskernel_core.models import catalog
from serving import api as api_module
from serving.api import Api
from serving.asked import Asked, planned
from serving.callers import Caller, Callers
from serving.forms import FORMS
from tests.support import until
from tests.support.fake_worker import Desk, put

MODEL = "demo-attn-2l"
JSON = {"Content-Type": "application/json"}


def asked(question="etc", **fields):
    body = {"question": question, "model": MODEL} | fields
    return json.dumps({name: each for name, each in body.items() if each is not None}).encode()


HERE, FAR = ("127.0.0.1", 5000), ("203.0.113.7", 5000)


def client_of(engine, *, client=HERE, started_as="", api=None, headers=None):
    """A program that asks a server with an engine."""
    api = api or Api(lambda: engine, Callers())
    app = Starlette(routes=[api.route(started_as)])
    return TestClient(app, "http://localhost", client=client, headers=headers)


@pytest.fixture
def web(shipped, monkeypatch):
    monkeypatch.setenv("POSKERNEL_API", "on")
    return client_of(shipped)


def ask(web, question="etc", accept="application/json", wait=None, **fields):
    where = "/api/v1/answers" + ("" if wait is None else f"?wait={wait}")
    return web.post(where, headers=JSON | {"Accept": accept}, content=asked(question, **fields))


def test_a_stored_answer(web, shipped, monkeypatch):
    """As pk.show returns it; then again by its own address, and not read for who has it."""
    chosen = {"head": "L1H2", "query": 127}
    answer = ask(web, **chosen)
    here = pk.show("etc", MODEL, engine=shipped, **chosen)
    assert 200 == answer.status_code
    assert to_json(here) == answer.text
    Draft202012Validator(web.get("/api/v1/questions/etc").json()["answer"]).validate(answer.json())

    where = answer.headers["content-location"]
    assert where.endswith("?head=L1H2&query=127")
    tag = answer.headers["etag"]
    assert tag.startswith(f'"{where[8:89]}-L1H2-127-json-')
    assert "Accept" == answer.headers["vary"]
    again = web.get(f"/api/v1/{where}")
    assert (tag, answer.content) == (again.headers["etag"], again.content)
    other = web.get(f"/api/v1/{where.partition('?')[0]}?head=L0H0")
    assert to_json(pk.show("etc", MODEL, engine=shipped, head="L0H0")) == other.text

    monkeypatch.setattr(Engine, "cached", lambda *_: 1 / 0)
    for known, status in ((tag, 304), (f'W/"x", {tag}', 304), ('"x"', 200), ("", 200)):
        answer = web.get(f"/api/v1/{where}", headers={"If-None-Match": known})
        assert status == answer.status_code


def test_an_address_that_a_new_server_has_not_heard_of(web, shipped):
    where = ask(web).headers["content-location"]
    assert ask(web).content == client_of(shipped).get(f"/api/v1/{where}").content


def test_the_address_of_what_is_put_together(asking, monkeypatch):
    """It is not stored: another server says how to have it again, and answers then."""
    question = ANALYSES["head-measures"]
    monkeypatch.setattr(type(question), "compose", lambda *made: next(iter(made[1].values())))
    plan = planned(Asked(question=question.name, model=MODEL, run=RUN)).plan
    assert plan.parts
    for part in plan.parts.values():
        put(asking.engine, part)
    first, other = asking.program(), client_of(asking.engine)
    answer = ask(first, question.name, run=RUN)
    where = f"/api/v1/{answer.headers['content-location']}"
    assert answer.content == first.get(where).content
    lost = other.get(where)
    assert (404, True) == (lost.status_code, "again by POST to answers" in lost.json()["detail"])
    assert answer.content == ask(other, question.name, run=RUN).content
    assert answer.content == other.get(where).content


def test_every_form(web, shipped, monkeypatch):
    here = pk.show("kernel", MODEL, engine=shipped, query=127, head="L1H2")
    made = {}
    monkeypatch.setattr("serving.forms.find_browser", lambda: "")
    monkeypatch.setattr("serving.forms.picture", lambda _, result, kind: kind.encode())
    for form in FORMS:
        answer = ask(web, "kernel", form.media, query=127, head="L1H2")
        assert (200, form.media) == (
            answer.status_code, answer.headers["content-type"].partition(";")[0],
        )  # fmt: skip
        assert answer.headers["etag"].split("-")[-2] == form.name
        made[form.name] = answer.content
    arrays = np.load(io.BytesIO(made["npz"]))
    np.testing.assert_array_equal(here.values["kernel"], arrays["kernel"])
    assert b"# model: " in made["csv"]
    assert b"Plotly.newPlot" in made["html"]
    assert (b"svg", b"png") == (made["svg"], made["png"])
    key = ask(web, "kernel", query=127).headers["content-location"][8:].partition("?")[0]
    assert here.fingerprint == from_line(key, made["exact"]).fingerprint


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/html"),
        ("text/*", "text/csv"),
        ("application/json;q=0.1, text/csv;q=0.2", "text/csv"),
        ("application/json;q=0, */*", "application/x-npz"),
        ("text/html; level=1; q=0.5, text/csv;q=0.4", "text/html"),
        ("application/pdf", None),
        ("application/json;q=0", None),
        ("nonsense", None),
    ],
)
def test_what_is_accepted(web, accept, kind):
    answer = ask(web, "etc", accept, head="L0H0")
    if kind is None:
        assert 406 == answer.status_code
        assert all(form.media in answer.json()["detail"] for form in FORMS)
    else:
        assert kind == answer.headers["content-type"].partition(";")[0]


def test_pictures_need_a_browser(web, monkeypatch):
    monkeypatch.delenv("BROWSER_PATH", raising=False)
    monkeypatch.setenv("PATH", "")
    answer = ask(web, "etc", "image/png", head="L0H0")
    assert 406 == answer.status_code
    assert "drawn by a browser" in answer.json()["detail"]


def test_answers_that_are_too_large(web, monkeypatch):
    monkeypatch.setattr("serving.forms.MAX_BYTES", 10_000)
    answer = ask(web)
    assert 413 == answer.status_code
    assert "one 'head' and one 'query', or for npz" in answer.json()["detail"]
    assert 200 == ask(web, head="L0H0", query=127).status_code


def test_an_answer_is_made_once(web, monkeypatch):
    """Also for who takes it compressed; a plan is made once too."""
    first = ask(web, head="L0H0")
    packed = web.post("/api/v1/answers", headers=JSON | {"Accept-Encoding": "gzip"},
                      content=asked(head="L0H0"))  # fmt: skip
    assert ("gzip", first.content) == (packed.headers["content-encoding"], packed.content)
    monkeypatch.setattr(Engine, "cached", lambda *_: 1 / 0)
    monkeypatch.setattr(api_module, "planned", lambda _: 1 / 0)
    assert first.content == ask(web, head="L0H0").content


def test_models_and_questions(web, shipped):
    models = {each["name"]: each for each in web.get("/api/v1/models").json()}
    assert [entry.name for entry in catalog.entries()] == [*models]
    geometry = catalog.locate(MODEL).geometry
    told = models[MODEL]
    assert (geometry.n_layers, geometry.n_heads) == (told["layers"], told["heads"])
    assert (True, "learned") == (told["weights"], told["positions"])
    (run,) = (each for each in told["runs"] if "etc" in each["questions"])
    assert run["windows"] == pk.show("etc", MODEL, engine=shipped).provenance["windows"]

    questions = web.get("/api/v1/questions").json()
    assert [*ANALYSES] == [each["name"] for each in questions]
    for each in questions:
        described = web.get(f"/api/v1/questions/{each['name']}").json()
        assert each.items() <= described.items()
        assert pk.schema(each["name"]) == described["answer"]
        Draft202012Validator.check_schema(described["params"])


def test_the_document(web):
    """By a validator of others; every endpoint and every parameter of a question is in it."""
    document = web.get("/api/v1/openapi.json").json()
    validate(document)
    for name, question in ANALYSES.items():
        declared = document["components"]["schemas"][f"params.{name}"]["properties"]
        assert [*question.params.model_fields] == [*declared]
    for path, operations in document["paths"].items():
        for method in operations:
            answer = web.request(method, f"/api/v1{path}", headers=JSON)
            assert 405 != answer.status_code


@pytest.fixture
def asking(fresh_engine, workers, monkeypatch):
    """Programs of a server whose worker says what the test tells it to say."""
    monkeypatch.setenv("POSKERNEL_API", "on")
    clock = [0.0]
    callers = Callers(lambda: clock[0])
    desk = Desk(fresh_engine, workers, None)
    fresh_engine._present, fresh_engine._person = present, person  # noqa: SLF001
    desk.clock, desk.callers, api = clock, callers, Api(lambda: fresh_engine, callers)
    desk.program = lambda name="one", client=HERE, **headers: client_of(
        fresh_engine, client=client, api=api, headers={CLIENT: name} | headers
    )
    return desk


RUN = {"context": 31, "windows": 7}


def begun(desk, web, **fields):
    """Ask for what is not stored; the answer and the job."""
    answer = ask(web, run=RUN, **fields)
    assert 202 == answer.status_code
    (job,) = (each for each in desk.engine.open_jobs())
    return answer, job


def finish(desk, job):
    put(desk.engine, job.plan)
    for part in job.parts or [job]:
        desk.end(part)


def test_a_job(asking):
    web = asking.program()
    answer, job = begun(asking, web)
    asking.begin(job, done=2)
    where = f"/api/v1/{answer.headers['location']}"
    told = web.get(where).json()
    assert ("running", 2, 7, "Reading") == tuple(
        told[name] for name in ("state", "done", "total", "note")
    )
    assert answer.headers["location"] == ask(web, run=RUN).headers["location"]  # the same again

    waited = []
    waiter = threading.Thread(target=lambda: waited.append(ask(web, run=RUN, wait=30)))
    waiter.start()
    (name,) = job.clients
    asking.clock[0] = 999.0
    until(lambda: present(name))
    asking.clock[0] = 1999.0
    until(lambda: present(name))  # it waits
    finish(asking, job)
    waiter.join()
    assert [2.0] == waited[0].json()["values"]["etc"]
    told = web.get(f"{where}?wait=30").json()
    assert "done" == told["state"]
    assert [2.0] == web.get(f"/api/v1/{told['answer']}").json()["values"]["etc"]


def test_a_job_that_fails(asking):
    web = asking.program()
    answer, job = begun(asking, web)
    asking.end(job, "error", error="NoSpace", message="The disk is full.")
    told = web.get(f"/api/v1/{answer.headers['location']}").json()
    assert ("error", 503) == (told["state"], told["problem"]["status"])
    assert "The disk is full." == told["problem"]["detail"]


def test_events(asking):
    """Progress, each stage as 'show --live --json' prints it, and the end."""
    web = asking.program()
    answer, job = begun(asking, web)
    asking.begin(job)
    put(asking.engine, job.plan.of_stage(4, 30))
    asking.say(job, "running", done=4, total=7, note="Reading", formed=4)
    until(lambda: job.formed == 4)
    threading.Timer(0.5, lambda: finish(asking, job)).start()
    with web.stream("GET", f"/api/v1/{answer.headers['location']}/events") as stream:
        assert "text/event-stream" in stream.headers["content-type"]
        events = [each.splitlines() for each in "".join(stream.iter_text()).split("\n\n") if each]
    names = [name.removeprefix("event: ") for name, *_ in events]
    assert "stage" == names[0]
    assert {"progress"} == {*names[1:-1]}
    assert "end" == names[-1]
    stage, last = (json.loads(events[at][-1].removeprefix("data: ")) for at in (0, -1))
    assert [2.0] == stage["values"]["etc"]
    where = events[0][1].removeprefix("id: ")
    assert stage["values"] == web.get(f"/api/v1/{where}").json()["values"]
    assert "done" == last["state"]


def test_cancelling(asking):
    """It goes on for others; a stranger's word stops nothing."""
    one, other = asking.program(), asking.program("other")
    answer, job = begun(asking, one)
    asking.hear(1)
    where = f"/api/v1/{answer.headers['location']}"
    for method in ("GET", "DELETE"):
        assert 404 == other.request(method, where, headers=JSON).status_code
    assert 404 == other.get(f"{where}/events").status_code
    assert 202 == ask(other, run=RUN).status_code
    assert 200 == one.delete(where, headers=JSON).status_code
    assert not job.cancelling
    theirs = ask(other, run=RUN).headers["location"]
    other.delete(f"/api/v1/{theirs}", headers=JSON)
    assert job.cancelling


def test_whether_a_job_is_wanted(asking):
    """For a minute after its client has asked, while it waits, and for ever if it is detached."""
    web = asking.program()
    _, job = begun(asking, web)
    (name,) = job.clients
    assert present(name)
    asking.clock[0] = 59.0
    assert present(name)
    asking.clock[0] = 61.0
    assert not present(name)
    with asking.callers.waiting(Caller("program one", "one", True)):
        asking.clock[0] = 999.0
        assert present(name)
    assert present(name)  # it has been told just now
    asking.clock[0] = 1999.0
    assert not present(name)

    finish(asking, job)
    _, job = begun(asking, web, params={"skip": 5}, detach=True)
    asking.clock[0] = 9999.0
    (name,) = job.clients
    assert present(name)
    assert "program one" == person(name)


def test_detached_jobs_are_within_the_quota(asking, monkeypatch):
    monkeypatch.setenv("POSKERNEL_MAX_JOBS", "1")
    web = asking.program()
    begun(asking, web, detach=True)
    answer = ask(web, run=RUN, params={"skip": 5})
    assert (503, "Busy") == (answer.status_code, answer.json()["error"])
    assert 0 < int(answer.headers["retry-after"])


def test_who_waits_too_often(asking, monkeypatch):
    """Who asks without waiting is answered all the same."""
    monkeypatch.setattr("serving.callers.MAX_WAITING", 2)
    monkeypatch.setattr("serving.callers.MAX_WAITING_IN_ALL", 3)
    one, other, third = map(asking.program, ("one", "two", "three"))
    answer, _ = begun(asking, one)

    def statuses(web):
        where = f"/api/v1/{ask(web, run=RUN).headers['location']}"
        asked = ask(web, run=RUN, wait=1), web.get(f"{where}?wait=1")
        return [each.status_code for each in asked]

    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(asking.callers.waiting(Caller("program one", "one", True)))
        assert [429, 429] == statuses(one)
        assert 429 == one.get(f"/api/v1/{answer.headers['location']}/events").status_code
        assert [202, 200] == statuses(other)
        stack.enter_context(asking.callers.waiting(Caller("program two", "two", True)))
        assert [429, 429] == statuses(third)
        refused = ask(third, run=RUN, wait=1)
        assert (5, "Busy") == (int(refused.headers["retry-after"]), refused.json()["error"])
    assert [202, 200] == statuses(third)


def test_typed_texts_are_their_persons(asking):
    """Who types the same text has the same answer; who knows its address alone has none."""
    one, other = asking.program(), asking.program("other")
    typed = {"params": {"text": "a secret"}, "question": "own-text"}
    answer = ask(one, **typed, run=RUN)
    (job,) = asking.engine.open_jobs()
    finish(asking, job)
    told = one.get(f"/api/v1/{answer.headers['location']}").json()
    where = f"/api/v1/{told['answer']}"
    answers = [each.get(where) for each in (one, other)]
    assert [200, 404] == [each.status_code for each in answers]
    assert "private, no-cache" == answers[0].headers["cache-control"]
    tag = answers[0].headers["etag"]
    assert 404 == other.get(where, headers={"If-None-Match": tag}).status_code
    new = client_of(asking.engine)  # a new server knows nobody: what is stored says what it is
    assert 404 == new.get(where).status_code
    assert (
        200
        == other.post("/api/v1/answers", headers=JSON, content=asked(**typed, run=RUN)).status_code
    )


def test_stages_of_typed_texts_are_their_persons_too(asking):
    one, other = asking.program(), asking.program("other")
    typed = {"params": {"text": "a secret"}, "question": "own-text"}
    answer = ask(one, **typed, run=RUN)
    (job,) = asking.engine.open_jobs()
    put(asking.engine, stage := job.plan.of_stage(4, 30))
    asking.say(job, "running", done=4, total=7, note="Reading", formed=4)
    until(lambda: job.formed == 4)
    threading.Timer(0.5, lambda: finish(asking, job)).start()
    stream = one.get(f"/api/v1/{answer.headers['location']}/events").text
    assert f"id: answers/{stage.key}" in stream
    where = f"/api/v1/answers/{stage.key}"
    assert [200, 404] == [each.get(where).status_code for each in (one, other)]


def test_persons(asking, monkeypatch):
    """Two programs of one address are one person, but on this machine; a proxy's word is first."""
    monkeypatch.setenv("POSKERNEL_ADDRESS", "http://localhost")
    one, other = asking.program("one", FAR), asking.program("other", FAR)
    answer, _ = begun(asking, one)
    where = f"/api/v1/{answer.headers['location']}"
    assert [200, 200] == [each.get(where).status_code for each in (one, other)]
    assert 404 == asking.program("one", ("203.0.113.8", 5000)).get(where).status_code
    monkeypatch.setenv("POSKERNEL_USER_HEADER", "X-Forwarded-User")
    anna = asking.program("one", FAR, **{"X-Forwarded-User": "anna"})
    assert 404 == anna.get(where).status_code
    where = f"/api/v1/{ask(anna, run=RUN).headers['location']}"
    assert 200 == asking.program(**{"X-Forwarded-User": "anna"}).get(where).status_code
    assert 404 == asking.program(**{"X-Forwarded-User": "ben"}).get(where).status_code
    wrong = asking.program("a b").get(where)
    assert (400, True) == (wrong.status_code, CLIENT in wrong.json()["detail"])


def test_what_programs_get(asking, monkeypatch):
    web = asking.program()
    for mode, address, statuses in (
        ("off", None, (404, 404)),
        ("stored", "localhost", (200, 409)),
        ("on", None, (200, 202)),
        ("", "localhost", (200, 202)),
        ("", "0.0.0.0", (200, 409)),
        ("", None, (200, 409)),
    ):
        monkeypatch.setenv("POSKERNEL_API", mode)
        monkeypatch.setattr(api_module.config, "get_option", {"server.address": address}.get)
        answers = web.get("/api/v1/questions"), ask(web, run=RUN)
        assert statuses == tuple(each.status_code for each in answers), (mode, address)


def test_results_without_weights(web):
    answer = ask(web, model="smollm2-135m-instruct-q4", run=RUN)
    assert (409, "ComputeDisabled") == (answer.status_code, answer.json()["error"])
