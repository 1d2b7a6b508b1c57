"""The grid of all heads by a measure of numbers and by one of names, in a browser."""

import io
import json
import re
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from streamlit.testing.v1 import AppTest

from poskernel_core.analyses.contextual_heads.spec import BEHAVIOURS
from tests.pages.test_downloads import download
from tests.support.bound import bound, opened, walk
from tests.support.visit import (
    cell,
    cells,
    choose,
    head_shown,
    no_trouble,
    parameter,
    settle,
    tool,
    values,
    visit,
)

COLOUR, ORDER, CONTEXT = "Colour heads by", "Order of heads", 128
FACES = """cells => cells.map(cell => getComputedStyle(cell.firstChild).backgroundColor)"""


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
        bound(app)["measure"].select(measure).run()
        assert ([], []) == ([*app.exception], [*app.error])
        *_, grid = (data for data in parts(app) if "rows" in data)  # after that of phones
        faces = [each for row in grid["rows"] for each in row]
        assert 32 == len(faces)
        assert sum(not each["missing"] for each in faces) > 8, measure


def parts(app: AppTest) -> list[dict[str, Any]]:
    """What the parts of the page itself are sent."""
    found = (each.proto for each in walk(app.main) if getattr(each, "type", "") == "bidi_component")
    return [json.loads(each.json) for each in found if each.json]


@pytest.mark.browser
def test_order_and_choice_by_a_measure(page, server):
    measure = "attention to the previous token"
    asked = {"context": CONTEXT, "measure": measure, "order": "largest first", "head": "L1H1"}
    visit(page, server.link(**asked))
    assert measure == page.get_by_role("combobox", name=COLOUR, exact=True).input_value()
    largest = numbers(page, measure)
    assert (np.diff(largest, axis=1) <= 0).all()
    assert np.ptp(largest) > 0.1
    page.locator(".st-key-filters summary").click()
    choose(page, ORDER, "smallest first")
    settle(page)
    np.testing.assert_array_equal(largest[:, ::-1], numbers(page, measure))
    expect(page.get_by_role("columnheader", name="1.", exact=True)).to_be_visible()
    choose(page, ORDER, "by number")
    settle(page)
    np.testing.assert_array_equal(np.sort(largest), np.sort(numbers(page, measure)))
    cell(page, "L2H5").click()
    expect(head_shown(page)).to_have_text("L2H5 at n = 127")
    settle(page)
    assert ("L2H5", "L2H5") == (parameter(page, "head"), values(page)["Head"])
    expect(cell(page, "L2H5")).to_have_attribute("aria-selected", "true")
    with np.load(io.BytesIO(download(page, "etc", "NPZ")), allow_pickle=False) as file:
        held = file["previous_mass"]
    np.testing.assert_allclose(numbers(page, measure), held, atol=5e-3)
    with tool(page, "etc", "Formula") as told:
        expect(told.get_by_text("Source.")).to_be_visible()
    groups_have_colours_of_their_own(page)
    no_trouble(page)


def groups_have_colours_of_their_own(page: Page) -> None:
    """A measure of names: the legend lists them, a colour each."""
    choose(page, COLOUR, "behaviour group")
    grid = page.get_by_test_id("stMain").locator(".head-grid:visible")
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
