"""The pages on random tokens, as scripts: recency of induction, and position against token."""

import re

import pytest
from streamlit.testing.v1 import AppTest

from pages.shared.jobs import results
from poskernel_core.common.rounding import rounded
from tests.support.bound import (
    bound,
    chosen,
    figure_on,
    fine,
    headings,
    opened,
    opened_as_linked,
    press,
    words,
)
from tools.recorded import figures_on

pytestmark = pytest.mark.slow

RECENCY, POSITION, HEADS = "induction_recency", "position_vs_token", 16
CELL = re.compile(r'<td title="(.*?)" style="[^"]*?background:([^";]*)[^"]*">(.*?)</td>', re.DOTALL)


@pytest.fixture
def show(computed):
    """Open a page of few sequences; all is computed."""

    def go_to(name: str, **link: object) -> AppTest:
        return fine(opened(name, model="demo-attn-2l", samples="100", **link))

    return go_to


def test_strongest_heads(shipped):
    """Five are named; those below that can't be told from the fifth are counted."""
    told = words(opened_as_linked(RECENCY, model="demo-gpt2"))
    (line,) = (line for line in told.splitlines() if line.startswith("Strongest: "))
    heads = re.findall(r"\[(L\dH\d)\]", line)
    assert 5 == len(heads)
    assert re.search(rf" \([1-9]\d* more can't be told from {heads[-1]}\)\. Loss", line)


def sequences(app: AppTest) -> list[list[tuple[str, str, str]]]:
    """Role, colour and word of every cell of the table of sequences."""
    (table,) = (each.proto.body for each in app.get("html") if "second [A] at" in each.proto.body)
    return [CELL.findall(row) for row in table.split("<tr>")[2:]]


def roles(length: int, pairs: list[int], start: bool) -> list[str]:
    """A row of the experiment: random tokens, pairs at the places given, the last [A]."""
    row = ["start"] * start + ["R"] * (length - start)
    for place, candidate in zip(pairs, ("[B]", "[C]", "[D]"), strict=False):
        row[place : place + 2] = ["[A]", candidate]
    return [*row[:-1], "[A]"]


@pytest.mark.parametrize(
    ("link", "length", "first", "start"),
    [
        ({}, 13, [2], True),
        ({"rstart": "false", "length": "15", "first": "3"}, 15, [3], False),
        ({"rstart": "false", "length": "15", "first": "3", "candidates": "3"}, 15, [3, 5], False),
    ],
)
def test_sequences(show, link, length, first, start):
    """Each candidate has one colour, in the table and in the figure."""
    app = show(RECENCY, **link)
    seconds = range(first[-1] + 2, length - 2)
    told = [[role for role, _, _ in row] for row in sequences(app)]
    assert [roles(length, [*first, second], start) for second in seconds] == told
    assert told == [[word for _, _, word in row] for row in sequences(app)]
    colours = {(role, colour) for row in sequences(app) for role, colour, _ in row}
    assert len(colours) == len(dict(colours))
    lines = {each.name: each for each in figure_on(app, "probability").data}
    for role, colour in colours:
        if role in ("[B]", "[C]", "[D]"):
            assert colour == lines[role].line.color
            assert len(seconds) == len(lines[role].x)


def test_the_tokens_of_one_sample(show):
    """Equal roles hold equal tokens, all others differ."""
    for row in sequences(show(RECENCY, showtokens="true")):
        assert 1 == len({word for role, _, word in row if role == "[A]"})
        assert len(row) - 2 == len({word for *_, word in row})


def test_one_head_and_its_layer(show):
    app = show(RECENCY, head="L1H5", rowlayer="0")
    assert "pattern" not in figures_on(app)
    button = app.button(key="select-offered")
    best = button.label[:4]
    assert {"L1H5"} == {each[:4] for each in headings(app) if re.match(r"L\dH", each)}
    app = fine(button.click().run())
    assert best == chosen(app, "head")
    assert {best} == {each[:4] for each in headings(app) if re.match(r"L\dH", each)}
    assert "pattern" in figures_on(fine(bound(app)["rowlayer"].select(1).run()))


def test_few_and_many_random_tokens(show):
    app = show(RECENCY, rlength="20")
    for length in (7, 48):
        app = press(app, f"length-{length}")
        assert [length, length - 1] == [bound(app)[key].value for key in ("rlength", "rquery")]
        assert any(f"attention from position {length - 1}" in each for each in headings(app))


def test_norms_as_the_cause(show):
    app = show(RECENCY, comparenorms="true", head="L1H0")
    (table,) = (each.value for each in app.dataframe if "norms equalised" in each.value)
    assert len(table) > 3
    other = table[~table[""].str.contains("slope")]
    assert (other["norms as they are"] != other["norms equalised"]).all()
    assert not table.map(lambda text: text.endswith("± 0.0000")).to_numpy().any()


def test_heads_by_how_far_they_look_back(show):
    app, found = show(POSITION, pquery="9"), 0
    assert any("scores from position 9" in each for each in headings(app))
    for name in ("k = 0", "k = 1", "k = 2", "k ≥ 3"):
        app = show(POSITION, lookk=name)
        tables = [each.value["k, position only"] for each in app.dataframe]
        assert bool(tables) != any(name in each.value for each in app.info)
        for k in tables:
            assert (k >= 3 if "≥" in name else k == int(name[-1])).all()
            found += len(k)
    assert HEADS == found


def test_position_zero(show, monkeypatch):
    """The numbers are those of the result; without a start token, [B] is least likely from 0."""
    known, fetch = {}, results.fetch
    monkeypatch.setattr(
        results, "fetch", lambda q, *more: known.setdefault(q.name, fetch(q, *more))
    )
    app = show(POSITION)
    zero = known["position-zero"]
    numbers = map(rounded, zero.values["probability"], zero.errors["probability"])
    assert [*numbers] == [f"{each.value} {each.delta}" for each in app.metric]
    values = [float(each.value) for each in app.metric]
    assert min(values) == values[1]
    names = {each.name for each in figure_on(app, "zero").data}
    assert {each.label for each in app.metric} < names
