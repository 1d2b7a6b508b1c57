"""A request is resolved once, whatever way it takes; its plan travels to the worker.

And the progress of what is computed, as a page tells it.
"""

import io
import json
import re
import threading
from collections import Counter

import pytest
import streamlit as st
from streamlit.runtime.scriptrunner_utils.script_run_context import ThreadState
from streamlit.testing.v1 import AppTest

from pages.shared.jobs import results
from poskernel_core.analyses import ANALYSES
from poskernel_core.analyses.base import SubQuestion
from poskernel_core.analyses.head_measures.verdicts import HeadVerdicts
from poskernel_core.analyses.kernels.etc import EtcHeatMap, EtcParams
from poskernel_core.api import build_request
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.specs import CorpusSpec, Request
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.plan import Plan, make_plan
from poskernel_core.engine.worker import Worker
from poskernel_core.storage.store import Store
from tests.support import until
from tests.support.fake_worker import put
from tests.support.refusals import refused

WAIT = 60.0
ONCE = {"fitted": 1, "needs": 1}


@pytest.fixture
def run(model_dirs):
    """A small run of the tiny GPT-2."""
    text = "She sells sea shells by the sea shore. " * 20
    corpus = CorpusSpec(name="text", text=text)
    return describe_run(str(model_dirs["gpt2"]), corpus=corpus, context=17, windows=3)


@pytest.fixture
def visits(monkeypatch):
    """How often requests were made canonical, runs fitted, and what is needed found."""
    counted = Counter()

    def count(place, method, name):
        true = getattr(place, method)

        def counting(*given):
            counted[name] += 1
            return true(*given)

        monkeypatch.setattr(place, method, counting)

    count(EtcHeatMap, "canonical", "fitted")
    count(EtcHeatMap, "needs", "needs")
    return counted


@pytest.fixture
def engine(fresh_engine, workers, monkeypatch):
    """An engine that the pages use, with a worker that says what the test tells it to say."""
    fresh_engine.workers = workers
    monkeypatch.setattr(results, "engine", lambda: fresh_engine)
    monkeypatch.setattr(results, "session_id", lambda: "anna")
    monkeypatch.setattr(results, "_PLANS", {})
    return fresh_engine


def test_a_stored_result_on_a_page(engine, run, visits, monkeypatch):
    """Made canonical once to find its key; what it would need is not even looked at.

    A rerun of the page resolves nothing, and asks neither the disk nor the hub.
    """
    put(engine, make_plan(Request(analysis="etc", run=run, params={"skip": 3})))
    visits.clear()
    first = results.fetch(EtcHeatMap, run, EtcParams(skip=3))
    assert first.values["etc"] == [2.0]
    assert {"fitted": 1} == visits
    for method in ("has", "get", "get_bytes"):
        monkeypatch.setattr(Store, method, None)
    assert results.fetch(EtcHeatMap, run, EtcParams(skip=3)) is first
    assert {"fitted": 1} == visits
    assert [] == engine.workers


def test_a_computed_result_on_a_page(engine, run, visits, monkeypatch):
    """Looked for, also under way, handed to the worker, read: made canonical once for all of it."""
    monkeypatch.setattr(results, "PATIENCE", WAIT)
    request, found = Request(analysis="etc", run=run), []
    page = threading.Thread(target=lambda: found.append(results.ask(request)))
    page.start()
    until(lambda: engine.workers)
    (task,) = engine.workers[0].hear()["tasks"]
    assert ONCE == visits
    key = Plan.read(task["plan"]).key
    with engine._lock:  # which is held until the job that was handed over stands there
        job = engine._jobs[key]
    put(engine, job.plan)
    engine.workers[0].say(task["key"], "done")
    page.join(WAIT)

    assert found[0].values["etc"] == [2.0]
    assert ONCE == visits
    assert engine.cancel(job.plan) is False
    assert ONCE == visits


def test_a_program_that_waits(engine, run, visits):
    """The one call of a program counts as the many of a page."""
    assert engine.result(Request(analysis="etc", run=run), seconds=0) is None
    assert ONCE == visits


def test_the_worker(tmp_path, run, visits):
    """What is needed is found when the sums are gathered, and when they are opened."""
    store = Store(tmp_path)
    plan = make_plan(Request(analysis="etc", run=run)).looked_up(store)
    visits.clear()
    events = io.StringIO()
    task = {"key": "a", "plan": plan.as_json(), "execution": {"device": "cpu"}, "client": ""}

    Worker(store, events).serve([json.dumps({"tasks": [task]})])
    until(lambda: re.search('"(done|error)"[,}]', events.getvalue()), WAIT)
    assert '"error"' not in events.getvalue(), events.getvalue()
    assert "Reading windows of text" in events.getvalue()
    assert store.get(plan.key) is not None
    assert {"needs": 2} == visits


def test_a_plan_travels_as_json(run, tmp_path):
    """What arrives is what was sent: question, run, parameters, key, and what is missing."""
    plan = make_plan(Request(analysis="etc", run=run, params={"skip": 3}))
    plan = plan.looked_up(Store(tmp_path))
    there = Plan.read(json.loads(json.dumps(plan.as_json())))

    assert plan == there
    assert plan.missing


def test_a_message_that_does_not_fit_ends_its_task_alone(tmp_path, run):
    """The worker says so under the key that it was sent, and takes the next one."""
    events = io.StringIO()
    bad, worse = (
        Request(analysis=name, run=run, params=params)
        for name, params in (("etc", {"skip": 99}), ("nonsense", {}))
    )
    lines = [
        {"key": key, "plan": each.model_dump(mode="json"), "execution": {}}
        for key, each in (("one", bad), ("two", worse))
    ]

    Worker(Store(tmp_path), events).serve([json.dumps({"tasks": [line]}) for line in lines])
    until(lambda: events.getvalue().count("\n") == 2)
    said = [json.loads(line) for line in events.getvalue().splitlines()]
    assert ["one", "two"] == [each["key"] for each in said]
    assert ["InvalidField", "UnknownAnalysis"] == [each["error"] for each in said]


def test_what_is_settled_cannot_be_changed(run):
    """Nor is it made canonical a second time."""
    asked = make_plan(Request(analysis="etc", run=run))

    assert make_plan(asked) is asked
    assert asked.params == EtcParams()
    assert asked.run.corpus.fingerprint
    with pytest.raises(AttributeError):
        asked.params = EtcParams(skip=0)
    with pytest.raises(BadRequest):
        make_plan(Request(analysis="etc", run=run, params={"skip": 99}))


def test_a_sentence_of_ours_stands_as_it_is():
    """Nothing is put before it, no letter is changed, and what was given is said once.

    Words that are no field of a run: the way to say it, nothing of the library that checks it.
    """
    asked = build_request("compare-kernels", "demo-gpt2", params={"heads": "L2H6;Foo=3"})[0]
    with pytest.raises(BadRequest) as error:
        make_plan(asked)
    said = str(error.value)
    assert said.startswith(
        "Parameter 'heads' of 'compare-kernels': A pinned head is written L<layer>H<head>@model, "
    )
    assert said.endswith("; got 'L2H6;Foo=3'.")
    assert 1 == said.count("L2H6;Foo=3")
    parameter = "'skip' is a parameter of 'etc': give it in 'params', as in params={'skip':"
    with refused(f"^{re.escape(parameter)}"):
        build_request("etc", "demo-gpt2", skip=4)
    with refused(r"^Expected fields of a run \(context, corpus, "):
        build_request("etc", "demo-gpt2", text=8)


def test_a_composition_of_compositions(run, monkeypatch):
    """It would be asked for in two steps, of which there is one: refused at once, by name."""

    def parts(self, run, params):
        asked = params.model_dump(include={"skip", "query"})
        whole = make_plan(Request(analysis="head-measures", run=run, params=asked))
        return {"all": SubQuestion(whole.question, whole.run, whole.params)}

    monkeypatch.setattr(HeadVerdicts, "parts", parts)
    plan = make_plan(Request(analysis="verdicts", run=run))
    with pytest.raises(BadRequest, match="'verdicts' combines 'head-measures', which combines"):
        _ = plan.parts


def follow_two() -> None:
    """A page on which two results are computed."""
    from types import SimpleNamespace

    from pages.shared.jobs.jobs import follow
    from poskernel_core.analyses import find

    for number, analysis in enumerate(("etc", "helix")):
        run = SimpleNamespace(model=SimpleNamespace(name="demo-gpt2", fingerprint=""))
        job = SimpleNamespace(
            key=f"job{number}", done=1, total=4, note="Windows", ended=False, error=None,
            cancelling=False, formed=0, kept=0, refused="", seconds_left=lambda: 3.0,
            plan=SimpleNamespace(question=find(analysis), run=run, key=""),
        )  # fmt: skip
        follow(None, job)


@pytest.fixture
def places(monkeypatch) -> list[str | None]:
    """The fragment that each button is drawn in."""
    found: list[str | None] = []
    button = st.button

    def note(*labels, **named):
        found.append(ThreadState.get().fragment_id)
        return button(*labels, **named)

    monkeypatch.setattr(st, "button", note)
    return found


def test_progress(places):
    """Said in words, not by the name that the command line has for it.

    Cancel is in no fragment: one that has moved on the page drops its clicks; the page drops none.
    """
    app = AppTest.from_function(follow_two, default_timeout=60).run()
    assert not app.exception
    assert (2, [None, None]) == (len(app.get("progress")), places)
    shown = [each.value for each in app.markdown]
    assert "**Computing the effective token count for demo\\-gpt2**" in shown
    assert "**Computing the helix of positions for demo\\-gpt2**" in shown


def test_every_analysis_has_words_for_its_progress():
    """They begin small, as they stand after "Computing", and are no name of the command line."""
    for name, analysis in ANALYSES.items():
        assert analysis.noun_phrase[0].islower(), name
        assert analysis.noun_phrase != name
        assert not analysis.noun_phrase.endswith(".")
