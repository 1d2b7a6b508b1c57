"""The page on recency of induction in a browser: random tokens, the causal test, bad input."""

import pytest
from playwright.sync_api import Page, expect

from tests.pages.test_downloads import download
from tests.pages.test_recency import (
    CAUSE,
    MODEL,
    PAGE,
    QUERY,
    RANDOM,
    SAMPLES,
    TREND,
)
from tests.support.visit import (
    csv_rows,
    flip,
    no_trouble,
    parameter,
    press,
    redraws,
    shown,
    table,
    write,
)
from tests.support.visit_tables import opens

pytestmark = pytest.mark.browser


@pytest.fixture
def show(page: Page, server):
    return opens(page, server, PAGE, ready="norms", model=MODEL, samples=SAMPLES, head="L1H0")


def test_random_tokens(show):
    page = show()
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
    no_trouble(page)


def causes(page: Page) -> list[dict[str, str]]:
    """Three columns of the table of the causal test: a text for the meaning of each number."""
    found = table(page, "card-cause")
    heads = found.locator("th").all_text_contents()
    meaning, *columns = (
        found.locator(f"tbody td:nth-child({heads.index(name) + 1})").all_text_contents()
        for name in ("", "norms as they are", "norms equalised", "change")
    )
    return [dict(zip(meaning, column, strict=True)) for column in columns]


def test_is_the_norm_the_cause(show):
    page = show()
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


def test_a_long_computation_is_cancelled(page, server):
    page.goto(server.link(PAGE, model=MODEL, samples=20_000, length=128, rlength=7))
    expect(page.get_by_text(f"Computing the recency of induction for {MODEL}")).to_be_visible()
    told = page.get_by_test_id("stAlert").filter(has_text="was cancelled")
    page.get_by_role("button", name="Cancel").first.click()
    expect(told.first).to_be_visible()
    expect(page.get_by_role("button", name="Try again").first).to_be_visible()


def test_no_error_of_the_causal_test_is_rounded_away(show):
    page = show(comparenorms="true")
    expect(page.locator(".st-key-card-cause")).to_be_visible()
    texts = [text for column in causes(page) for text in column.values()]
    assert any("±" in text for text in texts)
    assert [] == [text for text in texts if text.endswith("± 0.0000")]
