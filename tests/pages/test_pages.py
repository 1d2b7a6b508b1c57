"""Every page in a browser at the first start: there at once, whole, set well, within the policy."""

import re
import time
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.support.server import serve
from tests.support.visit import (
    PATIENCE,
    console,
    in_both_themes,
    no_trouble,
    settle,
    still,
    tool,
    visit,
)
from tools.recorded import page_names

pytestmark = pytest.mark.browser

FIRST = "etc_heatmap"
WITHOUT_FIGURES = ("compare", "methods", "over_training", "own_text", "rotary_spectrum")
"""Pages that draw nothing of the first model before a reader has chosen something."""
WIDTHS = (390, 1024, 1400)
CUT = Path(__file__).with_name("cut.js").read_text("utf-8")
NOTE = """window.violations = [];
document.addEventListener("securitypolicyviolation",
  event => window.violations.push(`${event.effectiveDirective} ${event.blockedURI}`));
window.bars = 0;
new MutationObserver(() => {
  window.bars += document.querySelectorAll("[data-testid=stProgress]").length;
}).observe(document, {childList: true, subtree: true});
"""


@pytest.fixture(scope="module")
def cold(tmp_path_factory):
    """A server with an empty cache, and what comes with the project."""
    root = tmp_path_factory.mktemp("cold")
    with serve(root / "cache", root / "server.log", shipped=True) as started:
        yield started


def fits(page: Page, width: int) -> None:
    """No text is cut, and no tick stands over another, in a window so wide."""
    page.set_viewport_size({"width": width, "height": 2000})
    still(page)
    end = time.monotonic() + PATIENCE / 6000
    while (found := page.evaluate(CUT)) and time.monotonic() < end:  # on a busy machine
        still(page)
    assert [] == found, width


@pytest.mark.parametrize("name", page_names())
def test_every_width_and_theme(page, cold, name):
    """Of the model that a reader finds first, nothing is cut, covered, empty or too pale."""
    page.set_viewport_size({"width": WIDTHS[0], "height": 2000})
    visit(page, f"{cold.url}/{'' if name == FIRST else name}")
    for _ in in_both_themes(page):
        for width in WIDTHS:
            fits(page, width)
        found = Axe().run(page).response["violations"]
        grave = [each for each in found if each["impact"] in ("serious", "critical")]
        assert [] == [(each["id"], each["nodes"][0]["html"]) for each in grave]
    assert page.title().endswith("· PosKernel")
    assert not (cold.cache / "worker.log").exists()


def set_without_error(page: Page) -> None:
    """No formula in red, and no dollar signs of one that was not recognised."""
    expect(page.locator(".katex-error")).to_have_count(0)
    expect(page.get_by_test_id("stApp").get_by_text("$$", exact=False)).to_have_count(0)


def every_formula_is_set(page: Page, needed: bool) -> None:
    """In the menus of all cards, of which there must be one if needed, and in all folds."""
    main = page.get_by_test_id("stMain")
    folds = main.get_by_test_id("stExpander").locator("summary").filter(visible=True)
    folds.evaluate_all("found => found.forEach(each => each.click())")  # Methods has many
    settle(page)
    heads = main.locator("[class*=st-key-head-]")
    if needed:
        expect(heads.first).to_be_visible()
    for head in heads.all():
        card = re.search(r"st-key-head-(\S+)", head.get_attribute("class"))[1]
        with tool(page, card, "Formula") as told:
            expect(told.locator(".katex, p").first).to_be_visible()
            set_without_error(page)
            no_trouble(page)  # in any tab
    set_without_error(page)


@pytest.mark.parametrize("name", page_names())
def test_a_page(page, cold, name):
    """On a small screen and a phone: no error, nobody else asked, no progress bar, no worker."""
    asked, trouble = [], console(page)
    page.on("request", lambda request: asked.append(request.url))
    page.add_init_script(NOTE)
    page.set_viewport_size({"width": 1024, "height": 2000})

    visit(page, f"{cold.url}/{'' if name == FIRST else name}?model=demo-gpt2")
    assert 0 == page.evaluate("bars")
    fits(page, 1024)
    fits(page, 390)
    page.set_viewport_size({"width": 1280, "height": 900})
    every_formula_is_set(page, needed=name not in WITHOUT_FIGURES)

    for _ in in_both_themes(page):
        no_trouble(page)
    assert ([], []) == (trouble, page.evaluate("violations"))
    ours = (cold.url, cold.url.replace("http", "ws"), "data:", "blob:")
    assert [] == [address for address in asked if not address.startswith(ours)]
    assert not (cold.cache / "worker.log").exists()
