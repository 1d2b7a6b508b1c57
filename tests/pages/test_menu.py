"""The menu of a card: the browser opens and closes it, the server fills it once it is open."""

import pytest
from playwright.sync_api import expect

from tests.support.bound import choose, fine, opened, with_menu
from tests.support.visit import go, settle, tool, visit


@pytest.mark.browser
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


def test_a_menu_stays_filled_while_the_selection_is_the_same(shipped_only):
    """While results form, its page is drawn anew; once something else is chosen, it is closed."""
    app = with_menu(opened("etc_heatmap"), "etc")
    assert "Citation" in [each.label for each in fine(app.run()).tabs]
    assert not fine(choose(app, "head", "L0H1")).tabs
