"""The grid of all heads: its measures as a script; kinds, order and thresholds in a browser."""

import json
import re
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from streamlit.testing.v1 import AppTest

from poskernel_core.analyses.contextual_heads.behaviour import BEHAVIOURS
from tests.pages.test_downloads import arrays
from tests.support.bound import opened, walk
from tests.support.visit import (
    cell,
    cells,
    choose,
    flip,
    no_trouble,
    parameter,
    settle,
    slider,
    tool,
    visit,
)

COLOUR, ORDER = "Colour heads by", "Order of heads"
FACES = """cells => cells.map(cell => getComputedStyle(cell.firstChild).backgroundColor)"""


def kinds(page: Page) -> list[str]:
    found = r"tokens? at n = \d+, (local|slow decay|uniform),"
    return [re.search(found, label)[1] for label in labels(page)]


def labels(page: Page) -> list[str]:
    return cells(page).evaluate_all("cells => cells.map(cell => cell.getAttribute('aria-label'))")


def numbers(page: Page, measure: str) -> np.ndarray:
    """The value of every head, in the order shown, ``[layer, place]``."""
    found = [re.match(rf"L\dH\d: {measure} (-?[\d.e-]+)", label) for label in labels(page)]
    return np.array([float(match[1]) for match in found]).reshape(4, -1)


@pytest.mark.slow
def test_every_measure_of_the_map(shipped_only):
    """Every head has a cell, and most have a number or a name."""
    app = opened("etc_heatmap")
    box = next(each for each in app.selectbox if each.key == "measure")
    assert len(box.options) > 20
    for measure in box.options:
        app.selectbox(key="measure").select(measure).run()
        assert ([], []) == ([*app.exception], [*app.error])
        (grid,) = (data for data in parts(app) if "rows" in data)
        faces = [each for row in grid["rows"] for each in row]
        assert 32 == len(faces)
        assert sum(not each["missing"] for each in faces) > 8, measure


def parts(app: AppTest) -> list[dict[str, Any]]:
    """What the parts of the page itself are sent."""
    found = (each.proto for each in walk(app.main) if getattr(each, "type", "") == "bidi_component")
    return [json.loads(each.json) for each in found if each.json]


@pytest.mark.browser
def test_kernels_kinds_order_thresholds_and_measures(page, still):
    visit(page, f"{still.url}/?model=demo-gpt2&head=L2H6")
    expect(cells(page)).to_have_count(32)
    the_curve_follows_the_kinds(page)
    kernels_in_the_cells(page)
    page.locator(".st-key-filters summary").click()
    kinds_that_are_switched_off_are_dimmed(page)
    order_by_etc(page)
    thresholds_change_the_kinds(page)
    order_and_choice_by_a_measure(page)
    groups_have_colours_of_their_own(page)
    no_trouble(page)


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


def order_by_etc(page: Page) -> None:
    choose(page, ORDER, "largest first")
    expect(page.get_by_role("columnheader", name="1.", exact=True)).to_be_visible()
    settle(page)
    etc = np.array([float(re.search(r"ETC ([\d.]+)", label)[1]) for label in labels(page)])
    assert (np.diff(etc.reshape(4, 8), axis=1) <= 0).all()
    assert etc.min() > 0
    expect(cell(page, "L2H4")).to_have_attribute("aria-selected", "true")


def thresholds_change_the_kinds(page: Page) -> None:
    """With every share of the mass enough, all heads are local."""
    assert {"local", "slow decay", "uniform"} == set(kinds(page))
    slider(page, "Mass in them that makes a head local").press("Home")
    expect(page).to_have_url(re.compile(r"lshare=0"))
    settle(page)
    assert {"local"} == set(kinds(page))


def the_curve_follows_the_kinds(page: Page) -> None:
    """Its axis is logarithmic where the head is local, at once as the head changes."""
    axis = page.locator(".curve .tick.middle").last
    assert "local" == kinds(page)[2 * 8 + 6]
    expect(axis).to_contain_text("log scale")
    assert "uniform" == kinds(page)[2 * 8 + 4]
    cell(page, "L2H4").click()
    expect(axis).not_to_contain_text("log scale")


def kernels_in_the_cells(page: Page) -> None:
    """A switch draws every kernel in its cell; pointing at one shows it larger, with no request."""
    flip(page, "Kernels in the cells", False)
    assert "false" == parameter(page, "curves")
    expect(cells(page).locator("svg")).to_have_count(0)
    flip(page, "Kernels in the cells", True)
    assert parameter(page, "curves") is None
    expect(cells(page).locator("svg polyline")).to_have_count(32)
    shapes = (
        cells(page)
        .locator("svg polyline")
        .evaluate_all("all => all.map(each => each.getAttribute('points'))")
    )
    assert len(set(shapes)) > 16
    asked = page.evaluate("window.visitor.asked")
    cell(page, "L1H3").hover()
    tip = page.locator(".tip:popover-open")
    large = tip.locator(".large polyline")
    expect(large).to_have_attribute("points", shapes[8 + 3])
    expect(tip).to_contain_text("kernel at n = 400, log spacing")
    assert asked == page.evaluate("window.visitor.asked")


def order_and_choice_by_a_measure(page: Page) -> None:
    measure = "attention to the previous token"
    choose(page, COLOUR, measure)
    settle(page)
    largest = numbers(page, measure)
    assert (np.diff(largest, axis=1) <= 0).all()
    assert np.ptp(largest) > 0.1
    choose(page, ORDER, "smallest first")
    settle(page)
    np.testing.assert_array_equal(largest[:, ::-1], numbers(page, measure))
    choose(page, ORDER, "by number")
    settle(page)
    np.testing.assert_array_equal(np.sort(largest), np.sort(numbers(page, measure)))
    held = arrays(page, "etc")["previous_mass"]
    np.testing.assert_allclose(numbers(page, measure), held, atol=5e-3)
    with tool(page, "etc", "Formula") as told:
        expect(told.get_by_text("Source.")).to_be_visible()


def groups_have_colours_of_their_own(page: Page) -> None:
    """A measure of names: the legend lists them, a colour each."""
    choose(page, COLOUR, "behaviour group")
    grid = page.get_by_test_id("stMain").locator(".head-grid")
    expect(grid.locator(".ticks span")).to_have_text([*BEHAVIOURS])
    settle(page)
    assert "behaviour group" == parameter(page, "measure")
    kinds = [
        re.match(rf"L\dH\d: behaviour group ({'|'.join(BEHAVIOURS)});", each)[1]
        for each in labels(page)
    ]
    faces = cells(page).evaluate_all(FACES)
    assert 32 == len(faces)
    assert len(set(zip(kinds, faces, strict=True))) == len(set(kinds)) == len(set(faces)) > 1
