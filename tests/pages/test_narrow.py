"""Narrow windows: the grid of heads, words on numbers."""

import pytest
from playwright.sync_api import expect

from tests.support.visit import settle, visit

pytestmark = pytest.mark.browser

HEADS, HEADER, CELL = 12, 34, 26  # pixels of the grid's first column and of a cell, in grid.css


def test_twelve_heads_fit_and_a_grid_that_scrolls_says_so(page, still):
    """Twelve at 1024 pixels; a grid that scrolls fades at its edge until it is at its end."""
    page.set_viewport_size({"width": 1024, "height": 1000})
    visit(page, f"{still.url}/?model=demo-gpt2")
    main = page.get_by_test_id("stMain")
    grid, scroller = main.locator(".head-grid:visible"), main.locator(".scroller:visible")
    room = scroller.evaluate("node => node.clientWidth")
    assert room >= HEADER + HEADS * CELL
    assert "scrolls" not in (grid.get_attribute("class") or "")
    hint = grid.locator(".hint")
    assert not hint.is_visible()
    scroller.evaluate("node => { node.style.width = '150px' }")
    hint.wait_for()
    assert "more" in grid.get_attribute("class")
    scroller.evaluate("node => { node.scrollLeft = node.scrollWidth }")
    expect(grid).not_to_contain_class("more")
    assert hint.is_visible()


def test_words_on_a_number_stand_below_it_on_a_phone(page, still):
    lies = """row => {
      const [name, number, words] = [...row.children].map(each => each.getBoundingClientRect());
      const whole = words.left <= name.left && words.right >= number.right - 1;
      const below = words.top >= number.bottom - 1 && whole;
      return [words.left >= number.right - 1, below];
    }"""
    visit(page, f"{still.url}/positional_kernels?model=demo-gpt2")
    for width, beside, below in ((1400, True, False), (390, False, True)):
        page.set_viewport_size({"width": width, "height": 1000})
        settle(page)
        row = page.locator("tr").filter(has_text="how many tokens the kernel covers")
        expect(row).to_be_visible()
        assert [beside, below] == row.evaluate(lies)
