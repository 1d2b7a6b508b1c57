"""The controls of the grid in a browser: kinds shown and thresholds; order: `test_measures.py`."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.visit import cell, cells, flip, no_trouble, parameter, settle, visit, write

pytestmark = pytest.mark.browser


def kinds(page: Page) -> list[str]:
    labels = [each.get_attribute("aria-label") for each in cells(page).all()]
    return [
        re.search(r"tokens? at n = \d+, (local|slow decay|uniform),", label)[1] for label in labels
    ]


def test_kernels_kinds_and_thresholds(page, server):
    visit(page, server.link(head="L2H6"))
    expect(cells(page)).to_have_count(32)
    the_curve_follows_the_kinds(page)
    kernels_in_the_cells(page)
    page.locator(".st-key-filters summary").click()
    kinds_that_are_switched_off_are_dimmed(page)
    thresholds_change_the_kinds(page)


def kinds_that_are_switched_off_are_dimmed(page: Page) -> None:
    dimmed = page.get_by_test_id("stMain").locator("[role=gridcell].dimmed")
    expect(dimmed).to_have_count(0)
    uniform = kinds(page).count("uniform")
    assert 0 < uniform < 32
    switch = page.get_by_role("toolbar", name="Show kinds").get_by_role("button", name="uniform")
    switch.click()
    expect(dimmed).to_have_count(uniform)
    assert all("(filtered out)" in each.get_attribute("aria-label") for each in dimmed.all())
    expect(page).to_have_url(re.compile("kinds="))
    switch.click()
    expect(dimmed).to_have_count(0)
    settle(page)


def thresholds_change_the_kinds(page: Page) -> None:
    """With every share of the mass enough, all heads are local."""
    assert {"local", "slow decay", "uniform"} == set(kinds(page))
    write(page, "Mass in them that makes a head local", "0")
    expect(page).to_have_url(re.compile(r"lshare=0"))
    settle(page)
    assert {"local"} == set(kinds(page))
    no_trouble(page)


def the_curve_follows_the_kinds(page: Page) -> None:
    """Its axis is logarithmic for every head, so that curves can be compared."""
    axis = page.locator(".curve .tick.middle").last
    assert "local" == kinds(page)[2 * 8 + 6]
    expect(axis).to_contain_text("log scale")
    assert "uniform" == kinds(page)[2 * 8 + 4]
    cell(page, "L2H4").click()
    expect(page.locator(".curve")).to_contain_text("L2H4")
    expect(axis).to_contain_text("log scale")
    expect(page).to_have_url(re.compile("head=L2H4"))  # the server has followed, too
    settle(page)


CURVES = """async grids => {
const read = grid => {
  const area = grid.querySelector(".curves svg").getBoundingClientRect();
  if (area.right <= 0 || !area.width) return []; // folded away
  const [, , columns, rows] = grid.querySelector(".curves svg").getAttribute("viewBox").split(" ");
  const paths = [...grid.querySelectorAll(".curves path")].map(each => each.getAttribute("d"));
  return paths.join("").split("M").slice(1).map(each => {
    const points = each.split("L").map(point => point.split(" ").map(Number));
    const ends = all => [Math.min(...all), Math.max(...all)];
    const [left, right] = ends(points.map(([x]) => area.x + (x * area.width) / columns));
    const [top, bottom] = ends(points.map(([, y]) => area.y + (y * area.height) / rows));
    const inside = cell => {
      const box = cell.getBoundingClientRect();
      return Math.min(left - box.left, box.right - right, top - box.top, box.bottom - bottom) > -1;
    };
    const cells = [...grid.querySelectorAll("td[data-name]")].filter(inside);
    return [cells.map(cell => cell.dataset.name).join(), points.map(([, y]) => y - Math.floor(y))];
  });
};
for (let tries = 0; ; tries++) {
  const drawn = grids.map(read).filter(grid => grid.length);
  if (tries === 600 || (drawn.length && drawn.flat().every(([names]) => names))) return drawn;
  await new Promise(then => setTimeout(then, 100));
}
}"""
"""For every grid and drawn kernel: the cells that it lies in, and the heights of its steps.

After a change of width curves stretch with their cells, and are drawn anew once it rests.
"""


def kernels_in_the_cells(page: Page) -> None:
    """A switch draws every kernel in its cell; pointing at one shows it larger, with no request."""
    flip(page, "Kernels in the cells", False)
    assert "false" == parameter(page, "curves")
    expect(page.locator(".head-grid:not(.small) .curves path")).to_have_count(0)
    flip(page, "Kernels in the cells", True)
    assert parameter(page, "curves") is None
    expect(page.locator(".head-grid:not(.small) .curves path").first).to_be_attached()
    every = [f"L{layer}H{head}" for layer in range(4) for head in range(8)]
    for width in (1400, 390, 1024):
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
        drawn = page.locator(".head-grid").evaluate_all(CURVES)
        assert drawn
        for grid in drawn:
            assert every == sorted(names for names, _ in grid)
    heights = dict(drawn[-1])  # of the larger grid
    assert len(set(map(tuple, heights.values()))) > 16
    asked = page.evaluate("window.visitor.asked")
    cell(page, "L1H3").hover()
    tip = page.locator(".tip:popover-open")
    large = tip.locator(".large path")
    expect(large).to_be_visible()
    steps = [float(point.split(" ")[1]) for point in large.get_attribute("d")[1:].split("L")]
    high = 34 / 36  # a cell, of a cell and the gap below it
    assert heights["L1H3"] == pytest.approx([high * each for each in steps], abs=2e-3)
    expect(tip).to_contain_text("kernel at n = 400, log spacing")
    assert asked == page.evaluate("window.visitor.asked")
