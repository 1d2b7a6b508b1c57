"""The page of previous-token heads as a script: the ranking, one head, stages of a text."""

import re

import pytest

from poskernel_core.analyses.interventions.presets import presets_for
from tests.support.bound import headings, named, opened, words
from tools.recorded import figures_on

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("computed")]

CONTEXT, CELL, FEW = 256, presets_for("demo-gpt2")[0].cell, "The king saw the city. "
OWN = {"item": "my own text", "zoom": "100"}


def show(**link):
    app = opened("previous_token", context=CONTEXT, windows="20", **{"head": CELL, **link})
    assert not app.exception
    return app


def kinds_in(table):
    return dict(zip(map(named, table["head"]), table["kind"], strict=True))


def test_ranking():
    app = show(query="127")
    table = app.dataframe[0].value
    kinds = kinds_in(table)
    assert 32 == len(kinds)
    assert f"{CELL}: {kinds[CELL]}" in headings(app)
    assert "Published for GPT-2 small" in app.expander[1].label  # after the bar on phones
    (tangent,) = (each for each in headings(app) if "around n = 127" in each)
    other = next(each for each in kinds if each != CELL)
    found = show(query="111", head=other, helixof="one token repeated")
    assert f"{other}: {kinds_in(found.dataframe[0].value)[other]}" in headings(found)
    assert tangent not in headings(found)
    assert "The helix of one token repeated" in words(found)


def test_heads_that_look_back_by_k():
    app = show(back="2")
    table = app.dataframe[0].value
    assert sorted(table["P(2)"], reverse=True) == [*table["P(2)"]]
    line = r"scroll for more: below the first 10, (\d+) more can't be told from (L\dH\d)\."
    ((count, last),) = re.findall(line, words(app))
    assert last == named(table["head"].iloc[9])
    assert 0 < int(count) <= len(table) - 10
    app = show(onlyback="true")
    table = app.dataframe[0].value
    assert {1} == set(table["largest at k"])
    assert f"{len(table)} heads" in words(app)
    assert {0} == set(show(onlyback="true", back="0").dataframe[0].value["largest at k"])
    sentence = "No head of this model has its largest diagonal at k = 31."
    assert sentence in words(show(onlyback="true", back="31"))


@pytest.mark.parametrize(
    ("link", "title"),
    [
        ({"zoom": "100"}, "Positions 100 to 149"),
        ({"zoom": "101", "zoomsize": "16", "item": "Exodus 12"}, "Positions 101 to 116"),
        (OWN | {"text": FEW * 30}, "Positions "),
        (OWN | {"text": FEW}, ""),
    ],
)
def test_stages_of_a_text_and_a_window(link, title):
    """A short text has no window."""
    app = show(**link)
    assert not app.error
    shown = figures_on(app)
    for part in ("whole", "window"):
        for stage in ("score", "masked_score", "pattern"):
            assert (f"{part}-{stage}" in shown) == (part == "whole" or bool(title))
    assert any("The whole text" in each for each in headings(app))
    assert any(title in each for each in headings(app))


def test_texts_that_do_not_fit():
    app = show(**OWN, text=FEW * 160)
    (told,) = app.error
    assert str(CONTEXT) in told.value
    assert not any("The whole text" in each for each in headings(app))
    assert "Type or paste a text" in words(show(**OWN))
