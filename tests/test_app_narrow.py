"""The grid of heads in a narrow window: room for twelve heads, and a word where it scrolls."""

import pytest
from playwright.sync_api import expect

from tests.visit import visit

pytestmark = pytest.mark.browser

HEADS, HEADER, CELL = 12, 34, 26  # pixels of the grid's first column and of a cell, in grid.css


def test_twelve_heads_fit_and_a_grid_that_scrolls_says_so(page, server):
    """The grid of the landing page has room for them at 1024 pixels, and needs no scrolling.

    Where it scrolls its edge fades and a line tells it, until it is scrolled to the end.
    """
    page.set_viewport_size({"width": 1024, "height": 1000})
    visit(page, server.link())
    room = page.locator(".scroller").evaluate("node => node.clientWidth")
    assert room >= HEADER + HEADS * CELL
    assert "scrolls" not in (page.locator(".head-grid").get_attribute("class") or "")
    grid, hint = page.locator(".head-grid"), page.locator(".head-grid .hint")
    assert not hint.is_visible()
    page.locator(".scroller").evaluate("node => { node.style.width = '150px' }")
    hint.wait_for()
    assert "more" in grid.get_attribute("class")
    page.locator(".scroller").evaluate("node => { node.scrollLeft = node.scrollWidth }")
    expect(grid).not_to_contain_class("more")
    assert hint.is_visible()
