"""The menu of a card: the browser opens and closes it, the server fills it once it is open."""

import pytest
from playwright.sync_api import expect

from tests.support.visit import go, in_both_themes, settle, tool, visit

pytestmark = pytest.mark.browser


def test_a_menu_is_filled_once(page, still):
    """Neither closing it asks for anything, nor opening it again, however soon."""
    visit(page, f"{still.url}/?model=demo-gpt2")
    menu = page.locator(".st-key-head-etc").get_by_role("button", name="About this figure")
    with tool(page, "etc", "Formula"):
        asked = page.evaluate("visitor.asked")
    for _ in range(3):
        menu.click()
        expect(page.get_by_role("tab", name="Formula", exact=True)).to_be_visible()
        page.keyboard.press("Escape")
    settle(page)
    assert asked == page.evaluate("visitor.asked")
    go(page, "Helix")
    with tool(page, "helix", "Formula") as told:
        expect(told.locator(".katex").first).to_be_visible()


def test_a_menu_that_is_open_stays_as_it_is(page, still):
    """While results form, or the reader's machine turns dark, its page is drawn anew."""
    visit(page, f"{still.url}/?model=demo-gpt2")
    with tool(page, "etc", "Citation") as told:
        for _ in in_both_themes(page):
            expect(told.get_by_text("@software")).to_be_visible()
