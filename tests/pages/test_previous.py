"""The page of previous-token heads in a browser: every control, and what it changes."""

import pytest
from playwright.sync_api import Locator, Page, expect

from poskernel_core.analyses.interventions.presets import presets_for
from tests.support import visit_tables as tables
from tests.support.visit import (
    complains,
    curve,
    head_shown,
    in_both_themes,
    move,
    no_trouble,
    parameter,
    pick,
    redraws,
    seek,
    settle,
    side_cell,
    slider,
    table,
    title_of,
    values,
    write,
)
from tests.support.visit_tables import opens

pytestmark = pytest.mark.browser

PAGE, CONTEXT, ROW = "/previous_token", 256, 35
CELL = presets_for("demo-gpt2")[0].cell
BACK, WINDOW = "Look back k (tokens)", "Window begins at position"


@pytest.fixture
def show(page: Page, server):
    return opens(page, server, PAGE, width=1900, head=CELL, context=CONTEXT)


def ranking(page: Page) -> Locator:
    return table(page, "ranking-table")


def column(page: Page, name: str) -> list[str]:
    return tables.column(page, "ranking-table", name)


def test_ranking_and_curves(show):
    page = show(query=127)
    expect(ranking(page)).to_have_attribute("aria-rowcount", "33")
    names = column(page, "head")
    kind = column(page, "kind")[names.index(CELL)]
    expect(page.get_by_role("heading", name=f"{CELL}: {kind}")).to_be_visible()
    published = page.get_by_test_id("stExpander").filter(has_text="Published for GPT-2 small")
    published.locator("summary").click()
    expect(published.get_by_test_id("stDataFrame")).to_be_visible()
    curves_of_a_head(page)

    write(page, BACK, "2")
    only = page.get_by_role("switch", name="Only heads whose largest diagonal is k = 2")
    expect(only).to_be_visible()
    assert "2" == parameter(page, "back")
    shares = [float(share) for share in column(page, "P(2)")]
    assert sorted(shares, reverse=True) == shares

    write(page, BACK, "1")
    share = page.get_by_text("have the previous token as their largest diagonal").inner_text()
    page.get_by_role("switch", name="Only heads whose largest").check(force=True)
    settle(page)
    expect(ranking(page)).to_have_attribute("aria-rowcount", f"{int(share.split()[0]) + 1}")
    assert {"1"} == set(column(page, "largest at k"))
    assert "true" == parameter(page, "onlyback")
    page.get_by_role("switch", name="Only heads whose largest").uncheck(force=True)
    settle(page)

    other = next(row for row, name in enumerate(column(page, "head")) if name != CELL)
    name, kind = column(page, "head")[other], column(page, "kind")[other]
    place = page.locator(".st-key-ranking-table canvas").first
    place.click(position={"x": 17, "y": 36 + (other + 0.5) * ROW}, force=True)
    expect(page.get_by_role("heading", name=f"{name}: {kind}")).to_be_visible()
    settle(page)
    assert (name, name) == (parameter(page, "head"), values(page)["Head"])
    expect(page.get_by_text(f"Selected: {name}")).to_be_visible()
    no_trouble(page)


def no_head_looks_back_so_far(page: Page) -> None:
    sentence = page.get_by_text("No head of this model has its largest diagonal at k = 31.")
    expect(sentence).to_be_visible()
    write(page, BACK, "0")
    expect(sentence).to_have_count(0)
    assert {"0"} == set(column(page, "largest at k"))


def curves_of_a_head(page: Page) -> None:
    for _ in in_both_themes(page):
        expect(page.locator(".st-key-card-profile .curve .line").first).to_be_visible()
        for card in ("scores", "tangent"):
            expect(page.locator(f".st-key-card-{card} .main-svg").first).to_be_visible()
    expect(title_of(page, "tangent")).to_contain_text("around n = 127")
    with redraws(page, "tangent"):
        move(page, "ArrowLeft")
    expect(title_of(page, "tangent")).not_to_contain_text("n = 127")
    with redraws(page, "tangent"):
        pick(page, "one token repeated")
    expect(page.get_by_text("The helix of one token repeated")).to_be_visible()
    assert "one token repeated" == parameter(page, "helixof")
    other = "L0H0" if CELL != "L0H0" else "L0H1"
    before = curve(page)
    with redraws(page, "scores"), redraws(page, "tangent"):
        side_cell(page, other).click()
    expect(head_shown(page)).to_contain_text(other)
    assert before[1] != curve(page)[1]
    expect(page.get_by_role("heading", name=f"{other}: ")).to_be_visible()


def test_stages_of_a_text_and_a_window(show):
    page = show(zoom=100, back=31, onlyback="true")
    no_head_looks_back_so_far(page)
    expect(title_of(page, "stages-window")).to_contain_text("Positions 100 to 149")
    maps = [f"{part}-{stage}" for part in ("whole", "window")
            for stage in ("score", "masked_score", "pattern")]  # fmt: skip
    for name in maps:
        expect(page.locator(f".st-key-figure-{name} .main-svg").first).to_be_visible()
    with redraws(page, "window-pattern"):
        slider(page, WINDOW).press("ArrowRight")
    expect(title_of(page, "stages-window")).to_contain_text("Positions 101 to 150")
    assert "101" == parameter(page, "zoom")
    with redraws(page, "window-score"):
        seek(page, "Window (positions)", "16")
    expect(title_of(page, "stages-window")).to_contain_text("Positions 101 to 116")
    assert "16" == parameter(page, "zoomsize")
    with redraws(page, "whole-score"), redraws(page, "window-score"):
        seek(page, "Text", "Exodus 12")
    assert "Exodus 12" == parameter(page, "item")
    expect(title_of(page, "stages-window")).to_contain_text("Positions 101 to 116")
    seek(page, "Text", "my own text")
    a_text_of_the_readers_own(page)
    no_trouble(page)


def a_text_of_the_readers_own(page: Page) -> None:
    expect(page.get_by_text("Type or paste a text")).to_be_visible()
    few = "The king saw the city."
    write(page, "Your text", few)
    expect(title_of(page, "stages-whole")).to_contain_text("The whole text")
    expect(title_of(page, "stages-window")).to_have_count(0)
    assert few == parameter(page, "text")
    write(page, "Your text", f"{few} " * 160)
    complains(page, f"{CONTEXT}")
    expect(title_of(page, "stages-whole")).to_have_count(0)
    write(page, "Your text", f"{few} " * 30)
    expect(title_of(page, "stages-window")).to_contain_text("Positions ")
