"""The page of heads over training as a script: what is computed, what is not yet, what is shown."""

import re
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from poskernel_core.engine.plan import make_plan
from tests.analyses.training.test_over_training import checkpoint
from tests.support.bound import bound, fine, headings, opened_as_linked
from tools.recorded import figures_on

pytestmark = pytest.mark.slow

CHARTS = 5
"""Curves, the grids of all checkpoints, kinds, the kernel, induction and sink."""
EQUAL = "Equal checkpoints: step 8 has the weights of step 0."


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A run of three checkpoints; the first two have the same weights."""
    root = tmp_path_factory.mktemp("run")
    for step, gain in ((0, 0.0), (8, 0.0), (64, 1.0)):
        checkpoint(root, step, previous=gain)
    return root


@pytest.fixture
def opened(made, computed, monkeypatch):
    monkeypatch.setenv("POSKERNEL_MODELS", str(made))

    def go(**link: str) -> AppTest:
        return fine(opened_as_linked("over_training", model=str(made), windows="20", **link))

    return go


def said(app: AppTest) -> list[str]:
    offers = [each for each in app.caption if each.value.startswith("Not computed yet")]
    return [each.value.replace("\\", "") for each in (*offers, *app.info, *app.warning)]


def button(app: AppTest, label: str) -> Any:
    (found,) = [each for each in app.button if each.label == label]
    return found


def test_from_nothing_to_everything(opened, computed, monkeypatch):
    """One button computes all; what is shown then comes from the store, and no worker is asked."""
    app = opened()
    assert ["Not computed yet: 3 of 3 checkpoints (step-0, step-8, step-64)."] == said(app)
    assert 0 == len(figures_on(app))
    app = fine(button(app, "Compute them").click().run())
    assert ([EQUAL], CHARTS) == (said(app), len(figures_on(app)))

    monkeypatch.setattr(computed, "submit", None)
    again = opened(follow="distance to observed attention", head="L0H0", step="8")
    assert "Distance to observed attention over training" in headings(again)
    assert 8 == bound(again)["step"].value
    assert CHARTS - 1 == len(figures_on(opened(follow="kind of kernel")))
    # The sidebar's checkpoint plays no part here.
    app = opened(checkpoint="step-8")
    assert ([EQUAL], CHARTS) == (said(app), len(figures_on(app)))
    assert "step-8" == bound(app)["checkpoint"].value
    what_is_there_is_shown_meanwhile(opened, computed, monkeypatch)


def test_two_runs_side_by_side(opened, made, computed, monkeypatch, tmp_path_factory):
    """The second is computed when asked for, and read as the first, as far as its context goes."""
    other = tmp_path_factory.mktemp("other")
    for step in (0, 32):
        checkpoint(other, step, context=23, previous=step / 32)
    monkeypatch.setenv("POSKERNEL_MODELS", f"{made},{other}")
    opened()
    app = opened(alongside=str(other), tracked="L0H1", follow="half-mass distance")
    if "Compute them" in [each.label for each in app.button if each.key == "compute-checkpoints"]:
        app = fine(app.button(key="compute-checkpoints").click().run())
    assert f"Not computed yet: 2 of 2 checkpoints of {other} (step-0, step-32)." in said(app)
    app = fine(app.button(key="compute-checkpoints-beside").click().run())
    both = [each for each in headings(app) if each.startswith("Half-mass distance over training")]
    assert [
        f"Half-mass distance over training: {made}",
        f"Half-mass distance over training: {other}",
    ] == [each.replace("\\", "") for each in both]
    assert CHARTS + 1 == len(figures_on(app))


def test_a_second_run_that_cannot_be_read(opened, made, monkeypatch, tmp_path_factory):
    """It is said, and all of the first run stays."""
    broken = tmp_path_factory.mktemp("broken")
    checkpoint(broken, 0)
    (broken / "step-8").mkdir()
    (broken / "step-8" / "config.json").write_text("{")
    monkeypatch.setenv("POSKERNEL_MODELS", f"{made},{broken}")
    link = {"model": str(made), "windows": "20", "alongside": str(broken)}
    app = opened_as_linked("over_training", **link)
    assert not app.exception
    (wrong,) = app.error
    assert str(broken) in wrong.value.replace("\\", "")
    alone = opened()
    assert (said(alone), len(figures_on(alone))) == (said(app), len(figures_on(app))) != ([], 0)


def what_is_there_is_shown_meanwhile(opened, engine, monkeypatch):
    """One of three checkpoints is missing: it is named, the others drawn, nothing computed."""
    gone, cached = "step-8", engine.cached
    monkeypatch.setattr(
        engine, "cached", lambda asked: None if gone in make_plan(asked).parts else cached(asked)
    )
    monkeypatch.setattr(
        engine, "missing", lambda asked: [name for name in make_plan(asked).parts if name == gone]
    )
    app = opened(head="L1H2", step="64", tracked="L0H1")
    assert f"Not computed yet: 1 of 3 checkpoints ({gone})." in said(app)[0]
    assert button(app, "Compute them")
    assert CHARTS == len(figures_on(app))
    assert [0, 64] == [int(re.sub(r"\D", "", each)) for each in bound(app)["step"].options]
    assert ["L0H1"] == bound(app)["tracked"].value
    titles = " ".join(headings(app))
    assert "Kernel of L1H2 over training" in titles
    assert "Induction and attention to the first token, L1H2" in titles
    assert "Induction score at step 64" in titles
