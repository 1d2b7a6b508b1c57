"""What stands below the first screen is drawn when the reader comes near, and keeps its choices."""

import pytest
from playwright.sync_api import Page, expect

from tests.support.visit import go, head_shown, settle, side_cell, to_end, visit

pytestmark = pytest.mark.browser

FIRST_BELOW = ".st-key-card-layer"


@pytest.fixture
def at_top(page: Page, still):
    """Kernel, opened from another page."""
    visit(page, f"{still.url}/?head=L3H4")
    go(page, "Kernel")
    expect(head_shown(page)).to_have_text("L3H4 at n = 400")
    settle(page)
    expect(page.locator(FIRST_BELOW)).to_have_count(0)
    return page


def test_scrolling_there(at_top):
    to_end(at_top)
    expect(at_top.get_by_role("heading", name="Is the split additive?")).to_be_visible()


def test_looking_for_a_word_or_a_figure(at_top):
    """The list of figures is whole when it is opened; what the browser searches is there."""
    at_top.get_by_text("On this page").click()
    expect(at_top.get_by_role("link", name="Position and content, layer 3")).to_be_visible()
    go(at_top, "Map")
    go(at_top, "Kernel")
    expect(head_shown(at_top)).to_have_text("L3H4 at n = 400")
    settle(at_top)
    expect(at_top.locator(FIRST_BELOW)).to_have_count(0)
    at_top.keyboard.press("Control+f")
    expect(at_top.locator(FIRST_BELOW)).to_have_count(1)


def test_another_head(page, still):
    """Chosen from the top, it is drawn there alone; chosen beside what stands below, with it."""
    visit(page, f"{still.url}/positional_kernels?head=L3H4")
    expect(page.locator(FIRST_BELOW)).to_have_count(1)
    side_cell(page, "L7H1").click()
    expect(head_shown(page)).to_have_text("L7H1 at n = 400")
    expect(page.locator(FIRST_BELOW)).to_have_count(0)
    to_end(page)
    expect(page.locator(FIRST_BELOW)).to_contain_text("All heads of layer 7")
    settle(page)
    side_cell(page, "L20H8").click()
    expect(page.locator(FIRST_BELOW)).to_contain_text("All heads of layer 20")


def test_choices_in_it_stay(page, still):
    visit(page, f"{still.url}/induction_recency?head=L3H4&comparenorms=true")
    toggle = page.get_by_label("Compare with equalised norms")
    expect(toggle).to_be_checked()
    page.get_by_test_id("stMain").evaluate("main => main.scrollTo(0, 0)")
    side_cell(page, "L7H1").click()
    expect(toggle).to_have_count(0)
    settle(page)
    to_end(page)
    expect(toggle).to_be_checked()
    settle(page)
    assert "comparenorms=true" in page.url
