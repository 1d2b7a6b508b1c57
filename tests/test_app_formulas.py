"""Formulas in a browser: on every page each of them is set, none is shown as it was written."""

import pytest
from playwright.sync_api import Page, expect

from tests.visit import console, no_trouble, visit

pytestmark = pytest.mark.browser

PAGES = {
    "landing": ("/", {"cell": "L2H1"}),
    "kernels": ("/positional_kernels", {"cell": "L2H1"}),
    "previous token": ("/previous_token", {"cell": "L2H6"}),
    "contextual": ("/contextual", {"cell": "L0H4"}),
    "helix": ("/helix", {}),
    "interventions": ("/interventions", {"cell": "L2H6"}),
    "recency": ("/induction_recency", {"samples": 100}),
    "position": ("/position_vs_token", {"samples": 100}),
    "neurons": ("/contextual_neurons", {}),
    "methods": ("/methods", {}),
}


def set_without_error(page: Page) -> None:
    """No formula in red, and no dollar signs of one that was not recognised."""
    expect(page.locator(".katex-error")).to_have_count(0)
    expect(page.get_by_test_id("stApp").get_by_text("$$", exact=False)).to_have_count(0)


@pytest.mark.parametrize("name", PAGES)
def test_every_formula_is_set(page, server, name):
    """Every popover with a formula and every fold is server."""
    path, parameters = PAGES[name]
    trouble = console(page)
    visit(page, server.link(path, **parameters))
    main = page.get_by_test_id("stMain")
    for fold in main.get_by_test_id("stExpander").locator("summary").all():
        fold.click()
    buttons = main.get_by_role("button", name="Formula", exact=True)
    if name != "methods":
        expect(buttons.first).to_be_visible()
    for button in buttons.all():
        button.click()
        body = page.get_by_test_id("stPopoverBody")
        expect(body).to_be_visible()
        expect(body.locator(".katex, p").first).to_be_visible()
        set_without_error(page)
        page.keyboard.press("Escape")
        expect(body).to_have_count(0)
    set_without_error(page)
    no_trouble(page)
    assert [] == trouble
