"""The app in a browser: what is drawn, a head chosen by mouse, links, Back."""

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.pages.test_pages import NOTE
from tests.support.visit import (
    LATER,
    cell,
    cells,
    console,
    head_shown,
    in_both_themes,
    no_trouble,
    settle,
    values,
    visit,
)

pytestmark = pytest.mark.browser

FIRST = {"Model": "demo-gpt2", "Corpus": "sample", "Head": "L2H6", "query": "400", "skip": "4"}


def test_the_landing_page(page, server):
    """It is whole and asks nobody else; a head is opened by mouse and left by back."""
    trouble, hosts = console(page), set()
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    page.add_init_script(NOTE)
    visit(page, server.link())
    for _ in in_both_themes(page):
        expect(cells(page)).to_have_count(32)
        labels = [each.get_attribute("aria-label") for each in cells(page).all()]
        etc = re.compile(r"L\dH\d: ETC [\d.]+ ± [\d.]+ tokens at n = \d+, ")
        assert all(etc.match(label) for label in labels)
        legend = page.get_by_text("effective tokens (log scale)").filter(visible=True)
        expect(legend).to_have_count(1)
        expect(page.locator(".st-key-card-kernel .curve .point.kernel").first).to_be_visible()
        no_trouble(page)
    back(page)
    assert ([], []) == (trouble, page.evaluate("violations"))
    assert {urlsplit(server.url).netloc} == hosts - {""}
    a_strange_script_is_refused(page)


def a_strange_script_is_refused(page: Page) -> None:
    page.evaluate(
        """() => { const strange = document.createElement("script");
        strange.textContent = "window.strange = true"; document.body.append(strange); }"""
    )
    assert page.evaluate("window.strange") is None
    assert ["script-src-elem inline"] == page.evaluate("violations")


def back(page: Page) -> None:
    """One step in the history per click, if a second lies between; position and skip stay."""
    for name in ("L1H1", "L2H2"):
        page.wait_for_timeout(LATER)
        cell(page, name).click()
        expect(head_shown(page)).to_contain_text(f"{name} at n = 400")
        expect(page).to_have_url(re.compile(rf"[?&]head={name}(&|$)"))
        expect(cell(page, name)).to_have_attribute("aria-selected", "true")
        settle(page)
    for name in ("L1H1", "L2H6"):
        page.go_back()
        settle(page)
        expect(head_shown(page)).to_contain_text(f"{name} at n = 400")
        assert FIRST | {"Head": name} == values(page)
