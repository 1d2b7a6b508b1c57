"""Computations that a reader has cancelled, though others wait for them."""

import pytest
from streamlit.testing.v1 import AppTest

from pages.shared.jobs import jobs
from poskernel_core.common.specs import Request
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.job import Job
from poskernel_core.engine.plan import make_plan

ASKED = ("etc", "sinks", "entropy", "additivity")
AGAIN = {"error": "Try again", "cancelled": "Go on", "running": "Wait for it again"}


def page():
    import streamlit as st

    from pages.shared.jobs import jobs

    jobs.follow(None, st.session_state["again"])
    for job in st.session_state["left"]:
        jobs.follow(None, job)


@pytest.mark.parametrize("state", AGAIN)
def test_one_is_asked_for_again(state):
    """The others stay cancelled, and what was asked for again before still is."""
    run = describe_run("demo-gpt2", context=31, windows=11)
    plans = [make_plan(Request(analysis=each, run=run)) for each in ASKED]
    one, *left = [Job(f"{plan.key}-0", plan, state="running") for plan in plans]
    if state != "running":
        one.take({"state": state, "error": "ComputeFailed", "message": "Out of memory."})
    app = AppTest.from_function(page, default_timeout=60)
    app.session_state["again"], app.session_state["left"] = one, left
    app.session_state[jobs.LEFT] = {plan.key for plan in plans}
    app.session_state[jobs.AGAIN] = {"another"}
    app.run()
    assert (3 + (state == "running")) == app_says(app, "goes on for other readers")

    key = f"{AGAIN[state].replace(' ', '-').lower()}-{one.key}"
    app.button(key=key).click().run()
    assert not app.exception
    assert {plan.key for plan in plans[1:]} == app.session_state[jobs.LEFT]
    assert {"another", one.key} == app.session_state[jobs.AGAIN]
    assert 3 == app_says(app, "goes on for other readers")


@pytest.mark.parametrize(
    ("error", "again"),
    [
        ("ComputeFailed", True),
        ("NoNetwork", True),
        ("Busy", True),
        ("NoSpace", True),
        ("BadRequest", False),
        ("UnsupportedModel", False),
        ("TooSmall", False),
    ],
)
def test_again_only_where_trying_can_help(error, again):
    plan = make_plan(Request(analysis="etc", run=describe_run("demo-gpt2", context=31)))
    job = Job(f"{plan.key}-0", plan, state="running")
    job.take({"state": "error", "error": error, "message": "It did not work."})
    app = AppTest.from_function(page, default_timeout=60)
    app.session_state["again"], app.session_state["left"] = job, []
    app.run()
    assert [each.value for each in app.error] == ["It did not work."]
    assert [each.label for each in app.button] == ["Try again"] * again


def app_says(app, sentence):
    return sum(sentence in each.value for each in app.markdown)
