"""A result that waits for a button: who asks while it is being computed is shown its progress."""

from types import SimpleNamespace

import pytest
from streamlit.testing.v1 import AppTest

from pages.shared.jobs import pressed, results
from poskernel_core.analyses.head_measures.verdicts import HeadVerdicts, HeadVerdictsParams
from poskernel_core.common.specs import Request
from poskernel_core.engine.engine import describe_run
from poskernel_core.engine.job import ENDS, Job
from poskernel_core.engine.plan import make_plan


def page() -> None:
    from pages.shared.jobs.pressed import fetch_when_asked
    from poskernel_core.analyses.induction.spec import InductionScores
    from poskernel_core.engine.engine import describe_run

    run = describe_run("demo-gpt2", context=31, windows=11)
    fetch_when_asked(InductionScores, run, InductionScores.params(), "compute-scores")


@pytest.mark.parametrize(
    ("state", "followed"),
    [(None, False), ("queued", True), ("running", True), ("cancelled", False), ("error", False)],
)
def test_a_reader_who_has_pressed_nothing(monkeypatch, state, followed):
    """After a reload, or in a second tab, the session does not know what was pressed."""
    run, fetched = describe_run("demo-gpt2", context=31, windows=11), []
    plan = make_plan(Request(analysis="induction-scores", run=run))
    job = Job("x", plan, state=state or "queued")
    if state in ENDS:
        job.take({"state": state, "error": "ComputeFailed", "message": "Out of memory."})
    engine = SimpleNamespace(ready=lambda _: False, running=lambda _: job if state else None)
    monkeypatch.setattr(results, "engine", lambda: engine)
    monkeypatch.setattr(results, "fetch", lambda *asked: fetched.append(asked))
    app = AppTest.from_function(page, default_timeout=60).run()

    assert not app.exception
    assert (followed, followed) == (bool(fetched), not app.button)


@pytest.mark.parametrize(
    ("missing", "wanted", "asked"),
    [([], False, [""]), (["a", "b"], False, ["a,b"]), (["a", "b"], True, ["", "a,b"])],
)
def test_a_composition_is_asked_for_once(monkeypatch, missing, wanted, asked):
    """While it is being computed: the same one twice would have its progress twice on the page."""
    seen = []
    monkeypatch.setattr(pressed, "is_wanted", lambda _: wanted)
    monkeypatch.setattr(
        results, "fetch", lambda _question, _run, params: seen.append(params.leave_out)
    )
    params = HeadVerdictsParams(leave_out="")
    assert pressed.fetch_known(HeadVerdicts, None, params, missing, "key") is None
    assert asked == seen
