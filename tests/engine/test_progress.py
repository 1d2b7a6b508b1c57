"""The progress of computations as a script: several at once, and what they are called."""

import pytest
import streamlit as st
from streamlit.runtime.scriptrunner_utils.script_run_context import ThreadState
from streamlit.testing.v1 import AppTest

from poskernel_core.analyses import ANALYSES


def follow_two() -> None:
    """A page on which two results are computed."""
    from types import SimpleNamespace

    from pages.shared.jobs.jobs import follow
    from poskernel_core.analyses import find

    for number, analysis in enumerate(("etc", "helix")):
        run = SimpleNamespace(model=SimpleNamespace(name="demo-gpt2"))
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
