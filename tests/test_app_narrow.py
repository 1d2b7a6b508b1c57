"""Narrow windows in a browser: no text is cut, and no tick stands over another, on any page."""

from pathlib import Path

import pytest

from tests.test_app_formulas import PAGES
from tests.visit import no_trouble, visit

pytestmark = pytest.mark.browser

CUT = Path(__file__).with_name("cut.js").read_text("utf-8")
HEADS, HEADER, CELL = 12, 34, 26  # pixels of the grid's first column and of a cell, in grid.css


@pytest.mark.parametrize("width", [1024, 390])
@pytest.mark.parametrize("name", PAGES)
def test_no_text_is_cut(page, server, name, width):
    """On a small screen and on a phone."""
    path, parameters = PAGES[name]
    page.set_viewport_size({"width": width, "height": 2000})
    visit(page, server.link(path, **parameters))
    page.wait_for_timeout(1500)  # figures fit themselves to their columns after they are drawn
    assert [] == page.evaluate(CUT)
    no_trouble(page)


def test_twelve_heads_fit(page, server):
    """The grid of the landing page has room for them at 1024 pixels, and needs no scrolling."""
    page.set_viewport_size({"width": 1024, "height": 1000})
    visit(page, server.link())
    room = page.locator(".scroller").evaluate("node => node.clientWidth")
    assert room >= HEADER + HEADS * CELL
    assert "scrolls" not in (page.locator(".head-grid").get_attribute("class") or "")


def test_a_grid_that_scrolls_says_so(page, server):
    """Its edge fades and a line tells it, until it is scrolled to the end."""
    page.set_viewport_size({"width": 1024, "height": 1000})
    visit(page, server.link())
    grid, hint = page.locator(".head-grid"), page.locator(".head-grid .hint")
    assert not hint.is_visible()
    page.locator(".scroller").evaluate("node => { node.style.width = '150px' }")
    hint.wait_for()
    assert "more" in grid.get_attribute("class")
    page.locator(".scroller").evaluate("node => { node.scrollLeft = node.scrollWidth }")
    page.wait_for_function("node => !node.classList.contains('more')", arg=grid.element_handle())
    assert hint.is_visible()
