"""The page on recency of induction in a browser: every control, and what it changes."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.pages.test_downloads import download
from tests.support.visit import (
    cell,
    csv_rows,
    flip,
    hash_of,
    line_colour,
    no_trouble,
    parameter,
    press,
    redraws,
    seek,
    shown,
    table,
    title_of,
    traces,
    values,
    write,
)
from tests.support.visit_tables import opens

pytestmark = pytest.mark.browser

PAGE, MODEL, SAMPLES = "/induction_recency", "demo-attn-2l", 100
DRAWS, START = "Random sequences averaged over", "Start token first"
LENGTH, FIRST, CANDIDATES = "Length (tokens)", "Position of the first [A] (tokens)", "Candidates"
ROW, LAYER, TOKENS = "Row: second [A] at (tokens)", "Layer", "Show the tokens of the first sample"
RANDOM, TREND, QUERY = "Random tokens", "Trend from key", "Row n (tokens)"
SWITCHES, CAUSE = "Switches: parts of the model turned off", "Compare with equalised norms"
SILENT, HOW = "Ablated heads of layer 0", "Ablation"


@pytest.fixture
def show(page: Page, server):
    return opens(page, server, PAGE, ready="norms", model=MODEL, samples=SAMPLES, head="L1H0")


def sequences(page: Page, what: str = "cell.title") -> list[list[str]]:
    """The cells of the table of sequences, row by row: their role, or another thing of theirs."""
    rows = page.locator(".st-key-card-sequences tbody tr")
    expect(rows.first).to_be_visible()
    return rows.evaluate_all(
        f"rows => rows.map(row => [...row.querySelectorAll('td')].map(cell => {what}))"
    )


def roles(length: int, pairs: list[int], start: bool = True) -> list[str]:
    """A row of the experiment: random tokens, pairs at the places given, the last [A]."""
    row = ["start"] * start + ["R"] * (length - start)
    for place, candidate in zip(pairs, ("[B]", "[C]", "[D]"), strict=False):
        row[place : place + 2] = ["[A]", candidate]
    return [*row[:-1], "[A]"]


def head_of(page: Page, figure: str) -> str:
    hash_of(page, figure)
    return re.search(r"L\d+H\d+", title_of(page, figure).inner_text())[0]


def test_sequences(show):
    page = show()
    grid = page.get_by_role("gridcell", name=re.compile(r"^L\dH\d: induction score"))
    expect(grid).to_have_count(16)
    assert [roles(13, [2, second]) for second in range(4, 11)] == sequences(page)
    the_tokens_of_one_sample(page)
    row_and_layer_of_the_patterns(page)
    switches(page)
    sequences_drawn(page)
    layout_without_a_start_token(page)


def sequences_drawn(page: Page) -> None:
    with redraws(page, "probability"), redraws(page, "intrinsic"):
        press(page, DRAWS, "ArrowRight")
    with redraws(page, "probability"), redraws(page, "intrinsic"):
        write(page, "Seed", "7")
    with redraws(page, "probability"):
        flip(page, START, False)
    given = {"samples": "200", "seed": "7", "rstart": "false"}
    assert given == {name: parameter(page, name) for name in given}
    assert [roles(13, [2, second], False) for second in range(4, 11)] == sequences(page)
    no_trouble(page)


def switches(page: Page) -> None:
    page.get_by_text(SWITCHES).click()
    with redraws(page, "probability"), redraws(page, "norms"):
        seek(page, SILENT, "L0H0")
    assert "L0H0" == parameter(page, "ablated0")
    page.keyboard.press("Escape")
    with redraws(page, "probability"):
        seek(page, HOW, "uniform attention")
    assert "uniform attention" == parameter(page, "ablation")
    with redraws(page, "patterns"), redraws(page, "intrinsic"):
        flip(page, "Remove positions", True)
    with redraws(page, "patterns"), redraws(page, "intrinsic"):
        flip(page, "Equalise layer 0's head-output norms", True)
    assert ("true", "true") == (parameter(page, "nopos"), parameter(page, "equalise"))
    with redraws(page, "probability"):
        page.get_by_test_id("stMain").get_by_role("button", name="Remove L0H0").click()
    assert parameter(page, "ablated0") is None
    no_trouble(page)


def test_heads_and_norms(show):
    page = show(head="L1H5")
    assert {"L1H5"} == {head_of(page, name) for name in ("candidates", "rows", "pattern")}
    button = page.get_by_role("button", name=re.compile("L1H. is the strongest"))
    best = re.search(r"L\dH\d", button.inner_text())[0]
    assert best != "L1H5"
    with redraws(page, "candidates"), redraws(page, "intrinsic"):
        button.click()
    assert (best, best) == (head_of(page, "candidates"), values(page)["Head"])
    expect(button).to_have_count(0)
    with redraws(page, "candidates"), redraws(page, "intrinsic"):
        cell(page, "L1H4").click()
    assert ("L1H4", "L1H4") == (parameter(page, "head"), values(page)["Head"])
    expect(cell(page, "L1H4")).to_have_attribute("aria-selected", "true")
    cell(page, "L1H4").focus()
    page.keyboard.press("ArrowRight")
    with redraws(page, "rows"):
        page.keyboard.press("Enter")
    assert "L1H5" == head_of(page, "rows") == parameter(page, "head")
    random_tokens(page)
    norms_as_the_cause(page)
    no_trouble(page)


def layout_without_a_start_token(page: Page) -> None:
    for label, number, name, length, first in (
        (LENGTH, "15", "length", 15, [2]),
        (FIRST, "3", "first", 15, [3]),
        (CANDIDATES, "3", "candidates", 15, [3, 5]),
    ):
        with redraws(page, "probability"):
            write(page, label, number)
        assert number == parameter(page, name)
        seconds = range(first[-1] + 2, length - 2)
        assert [roles(length, [*first, second], False) for second in seconds] == sequences(page)
    assert sequences(page) == sequences(page, "cell.textContent")
    looks = "cell.title + ' ' + getComputedStyle(cell).backgroundColor"
    pairs = {each for row in sequences(page, looks) for each in row}
    colours = dict(each.split(" ", 1) for each in pairs)
    assert len(colours) == len(pairs) == len(set(colours.values())) == 5
    for name in ("[B]", "[C]", "[D]"):
        assert line_colour(page, "probability", name) == colours[name]
        assert len(seconds) == traces(page, "probability")[name]
    no_trouble(page)


def the_tokens_of_one_sample(page: Page) -> None:
    """Equal roles hold equal tokens, all others differ; the titles still tell the roles."""
    flip(page, TOKENS, True)
    expect(page.locator(".st-key-card-sequences td").first).not_to_have_text("start")
    assert "true" == parameter(page, "showtokens")
    for titles, tokens in zip(sequences(page), sequences(page, "cell.textContent"), strict=True):
        assert 1 == len({token for title, token in zip(titles, tokens, strict=True)
                         if title == "[A]"})  # fmt: skip
        assert len(titles) - 2 == len(set(tokens))
    flip(page, TOKENS, False)
    expect(page.locator(".st-key-card-sequences td").first).to_have_text("start")


def row_and_layer_of_the_patterns(page: Page) -> None:
    with redraws(page, "patterns"), redraws(page, "pattern"):
        press(page, ROW, "ArrowLeft")
    assert "9" == parameter(page, "row")
    with redraws(page, "patterns"):
        seek(page, LAYER, "0")
    assert "0" == parameter(page, "rowlayer")
    expect(page.locator(".st-key-card-pattern")).to_have_count(0)
    with redraws(page, "patterns"):
        seek(page, LAYER, "1")
    expect(page.locator(".st-key-figure-pattern .main-svg").first).to_be_visible()
    no_trouble(page)


def random_tokens(page: Page) -> None:
    with redraws(page, "intrinsic"), redraws(page, "norms"):
        page.get_by_role("button", name="Few: 7").click()
    assert "7" == parameter(page, "rlength")
    assert {RANDOM: "7", TREND: "2", QUERY: "6"} == shown(page, RANDOM, TREND, QUERY)
    with redraws(page, "intrinsic"):
        page.get_by_role("button", name="Many: 48").click()
    assert {RANDOM: "48", QUERY: "47"} == shown(page, RANDOM, QUERY)
    assert parameter(page, "rlength") is None
    with redraws(page, "intrinsic"):
        write(page, RANDOM, "20")
    with redraws(page, "intrinsic"):
        write(page, TREND, "5")
    with redraws(page, "intrinsic"):
        press(page, QUERY, "ArrowLeft")
    assert ["20", "5", "18"] == [
        parameter(page, each) for each in ("rlength", "trendfrom", "rquery")
    ]
    rows = csv_rows(download(page, "intrinsic", "CSV"))
    assert 20 == len({row["key"] for row in rows})
    page.keyboard.press("Escape")


def causes(page: Page) -> list[dict[str, str]]:
    """Three columns of the table of the causal test: a text for the meaning of each number."""
    found = table(page, "card-cause")
    heads = found.locator("th").all_text_contents()
    meaning, *columns = (
        found.locator(f"tbody td:nth-child({heads.index(name) + 1})").all_text_contents()
        for name in ("", "norms as they are", "norms equalised", "change")
    )
    return [dict(zip(meaning, column, strict=True)) for column in columns]


def norms_as_the_cause(page: Page) -> None:
    expect(page.locator(".st-key-card-cause")).to_have_count(0)
    flip(page, CAUSE, True)
    assert "true" == parameter(page, "comparenorms")
    kept, flat, change = causes(page)
    assert len(kept) == len(flat) == len(change) > 3
    assert all(kept[name] != flat[name] for name in kept if "slope" not in name)
    assert not [text for each in (kept, flat, change) for text in each.values()
                if text.endswith("± 0.0000")]  # fmt: skip
    flip(page, CAUSE, False)
    expect(page.locator(".st-key-card-cause")).to_have_count(0)
    no_trouble(page)
