"""The page of position against token in a browser: every control, and what it changes."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from poskernel_core.common.rounding import rounded
from tests.pages.test_downloads import arrays
from tests.support.visit import (
    flip,
    hash_of,
    no_trouble,
    parameter,
    pick,
    press,
    redraws,
    settle,
    shown,
    table,
    title_of,
    traces,
    values,
    write,
)
from tests.support.visit_tables import cell_text, opens

pytestmark = pytest.mark.browser

PAGE, MODEL, SAMPLES, HEADS, ROW = "/position_vs_token", "demo-attn-2l", 100, 16, 35
DRAWS, START = "Random sequences averaged over", "Start token first"
LENGTH, QUERY = "Length (tokens)", "Row n (tokens)"
FILTERS = ("k = 0", "k = 1", "k = 2", "k ≥ 3")


@pytest.fixture
def show(page: Page, server):
    return opens(page, server, PAGE, width=1900, ready="zero", model=MODEL, samples=SAMPLES)


def title(page: Page, figure: str) -> str:
    """The title of a figure's card, or that inside a figure that shares its card."""
    hash_of(page, figure)
    card = title_of(page, figure)
    if card.count():
        return card.inner_text()
    plot = f".st-key-figure-{figure} .js-plotly-plot"
    text = page.evaluate(f"document.querySelector('{plot}')._fullLayout.title.text")
    return re.sub("<.*?>", "", text)


def column(page: Page, name: str) -> Locator:
    heads = table(page, "look-back-table")
    expect(heads.locator("th").get_by_text(name, exact=True)).to_be_attached()
    place = heads.locator("th").all_text_contents().index(name)
    return heads.locator(f"tbody td:nth-child({place + 1})")


def curves(page: Page, figure: str) -> dict[str, int]:
    """The curves of a figure without the bands of their errors, and how many points they have."""
    found = traces(page, figure)
    return {name: points for name, points in found.items() if not name.endswith(" s.e.")}


def rows(page: Page) -> int:
    """How many heads the table holds, those outside the view as well."""
    frame = page.get_by_test_id("stMain").get_by_text(re.compile(r"^\d+ heads?; scroll for more"))
    return int(frame.inner_text().split()[0])


def test_every_control(show):
    page = show()
    three_curves_and_their_maps(page)
    heads_by_how_far_they_look_back(page)
    position_zero(page)
    a_row_selects_a_head(page)
    length_and_row(page)
    sequences_drawn(page)


def three_curves_and_their_maps(page: Page) -> None:
    for figure in ("scores", "attention"):
        assert {"both": 9, "position only": 9, "token only": 9} == curves(page, figure)
    for number, end in enumerate(("both", "position only", "token only")):
        assert title(page, f"map-{number}").endswith(f": {end}")
    expect(page.get_by_text("This model has rotary positions")).to_have_count(0)


def sequences_drawn(page: Page) -> None:
    with redraws(page, "scores"), redraws(page, "zero"):
        press(page, DRAWS, "ArrowRight")
    with redraws(page, "scores"), redraws(page, "zero"):
        write(page, "Seed", "7")
    with redraws(page, "scores"), redraws(page, "map-2"):
        flip(page, START, False)
    given = {"samples": "200", "seed": "7", "rstart": "false"}
    assert given == {name: parameter(page, name) for name in given}
    no_trouble(page)


def length_and_row(page: Page) -> None:
    with redraws(page, "scores"), redraws(page, "attention"):
        press(page, QUERY, "ArrowRight")
    assert ("9", {10}) == (parameter(page, "pquery"), set(curves(page, "scores").values()))
    assert title(page, "scores").endswith("scores from position 9")
    with redraws(page, "map-0"), redraws(page, "look-back"):
        write(page, LENGTH, "7")
    assert {LENGTH: "7", QUERY: "6"} == shown(page, LENGTH, QUERY)
    assert ("7", {7}) == (parameter(page, "plength"), set(curves(page, "attention").values()))
    no_trouble(page)


def heads_by_how_far_they_look_back(page: Page) -> None:
    found = 0
    assert HEADS == rows(page)
    for name in FILTERS:
        pick(page, name)
        assert name == parameter(page, "lookk")
        empty = page.get_by_text(f"No head of this model looks back by {name} with positions only")
        expect(empty.or_(page.locator(".st-key-look-back-table"))).to_be_visible()
        if empty.count():
            continue
        fits = re.compile(r"^([3-9]|\d\d)$" if "≥" in name else f"^{name[-1]}$")
        expect(column(page, "k, position only").filter(has_not_text=fits)).to_have_count(0)
        found += rows(page)
    assert HEADS == found
    pick(page, "all")
    assert parameter(page, "lookk") is None
    no_trouble(page)


def a_row_selects_a_head(page: Page) -> None:
    best = title(page, "scores").split(":")[0]
    for figure in ("scores", "attention", "map-0", "look-back"):
        assert title(page, figure).startswith(best)
    heads = [*map(cell_text, column(page, "head").all_text_contents())]
    other, name = next((row, name) for row, name in enumerate(heads) if name != best)
    place = page.locator(".st-key-look-back-table canvas").first
    with redraws(page, "scores"), redraws(page, "map-1"), redraws(page, "look-back"):
        place.click(position={"x": 17, "y": 36 + (other + 0.5) * ROW}, force=True)
    expect(page.get_by_text(f"Selected: {name}.")).to_be_visible()
    settle(page)
    assert (name, name) == (parameter(page, "head"), values(page)["Head"])
    assert name == title(page, "scores").split(":")[0]
    expect(page.get_by_role("heading", name=f"Mean patterns of {name}")).to_be_visible()
    with redraws(page, "scores"):
        page.get_by_role("button", name=f"{best} is the strongest").click()
    assert best == title(page, "scores").split(":")[0]
    no_trouble(page)


def position_zero(page: Page) -> None:
    labels = page.get_by_test_id("stMetricLabel").all_inner_texts()
    assert 3 == len(set(labels))
    assert [name for name in traces(page, "zero") if name in labels] == labels
    numbers = page.get_by_test_id("stMetricValue").all_inner_texts()
    file = arrays(page, "zero")
    texts = [*map(rounded, file["probability"], file["probability_error"])]
    deltas = page.get_by_test_id("stMetricDelta").all_inner_texts()
    assert texts == [f"{n} {delta}" for n, delta in zip(numbers, deltas, strict=True)]
    assert min(map(float, numbers)) == float(numbers[1])
