"""The app in a browser: what is drawn, a head chosen by mouse, links, Back."""

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.pages.test_pages import NOTE
from tests.support.visit import (
    LATER,
    QUERY,
    SKIP,
    cell,
    cells,
    choose,
    console,
    head_shown,
    in_both_themes,
    no_trouble,
    settle,
    slider,
    tool,
    unfold_run,
    values,
)
from tests.support.visit import visit as open_page

pytestmark = pytest.mark.browser

FIRST = {"Model": "demo-gpt2", "Corpus": "sample", "Head": "L2H6", "query": "400", "skip": "4"}


@pytest.fixture
def visit(page: Page, server):
    def opened(path: str = "/", **parameters: object) -> Page:
        open_page(page, server.link(path, **parameters))
        if path == "/":
            expect(cells(page)).to_have_count(32)
        return page

    return opened


def test_the_landing_page(page, visit, server):
    """It is whole and asks nobody else; a head is opened by mouse and left by back."""
    trouble, hosts = console(page), set()
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    page.add_init_script(NOTE)
    visit()
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


def test_sliders_and_another_corpus(visit):
    """A link keeps what equals an end of a slider; position, skip and corpus are followed."""
    page = visit(skip=0, query=15, context=64)
    cell(page, "L1H1").click()
    expect(head_shown(page)).to_contain_text("L1H1 at n = 15")
    settle(page)
    query = urlsplit(page.url).query
    assert {"windows=50", "skip=0", "query=15", "context=64", "head=L1H1"} == set(query.split("&"))
    slider(page, QUERY).press("ArrowRight")
    expect(head_shown(page)).to_contain_text("L1H1 at n = 17")
    expect(page).to_have_url(re.compile("query=17"))
    unfold_run(page)
    slider(page, SKIP).press("ArrowRight")
    expect(page).to_have_url(re.compile("skip=1"))
    slider(page, SKIP).press("ArrowRight")
    expect(page).to_have_url(re.compile("skip=2"))
    choose(page, "Corpus", "bible")
    settle(page)
    with tool(page, "kernel", "Provenance") as told:
        for words in ("Corpus bible", "First 2 keys skipped."):
            expect(told.get_by_text(words)).to_be_visible()


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


def test_another_model_keeps_what_fits(visit):
    """A cell or position that the new model lacks moves to the nearest; the head stays there."""
    page = visit(head="L3H7", query=511)
    choose(page, "Model", "demo-attn-2l")
    expect(cells(page)).to_have_count(16)
    settle(page)
    moved = {"Model": "demo-attn-2l", "Head": "L1H7", "query": "127"}
    assert FIRST | moved == values(page)
    choose(page, "Model", "demo-gpt2")
    expect(cells(page)).to_have_count(32)
    settle(page)
    no_trouble(page)
    assert FIRST | {"Head": "L1H7"} == values(page)
    assert {"windows=50", "head=L1H7"} == set(urlsplit(page.url).query.split("&"))
