"""A result that waits for a button: who asks while it is being computed is shown its progress."""

from types import SimpleNamespace

import pytest
from streamlit.testing.v1 import AppTest

from pages.shared.jobs import results
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
