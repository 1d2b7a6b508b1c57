"""The grid of all heads by any measure, and the additivity of keys, in a browser."""

import re

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from pages.shared.grid.measures import MEASURES as ALL_MEASURES
from poskernel_core.analyses.contextual_heads.behaviour import BEHAVIOURS
from poskernel_core.models import catalog
from tests.pages.test_downloads import arrays
from tests.support.visit import (
    cell,
    cells,
    choose,
    head_shown,
    no_trouble,
    parameter,
    redraws,
    settle,
    side_cell,
    title_of,
    tool,
    traces,
    values,
    visit,
)
from tests.support.visit_tables import drawn

pytestmark = pytest.mark.browser

GEOMETRY = catalog.locate("demo-gpt2").geometry
MEASURES = {title: each for title, each in ALL_MEASURES.items() if each.fits(GEOMETRY)}
COLOUR, ORDER, CONTEXT = "Colour heads by", "Order of heads", 128
NUMBER = r"(\(?[\d.]+(?: ± [\d.]+\)×10⁻\S)?)"
SHARES = rf"position explains {NUMBER}.*, content {NUMBER}.*, and their interaction {NUMBER}"
FACES = """cells => cells.map(cell => getComputedStyle(cell.firstChild).backgroundColor)"""


@pytest.fixture
def landing(page: Page, server):
    def go(**parameters: object) -> Page:
        visit(page, server.link(**{"context": CONTEXT, **parameters}))
        expect(cells(page)).to_have_count(32)
        return page

    return go


def labels(page: Page) -> list[str]:
    return cells(page).evaluate_all("cells => cells.map(cell => cell.getAttribute('aria-label'))")


def numbers(page: Page, measure: str) -> np.ndarray:
    """The value of every head, in the order shown, ``[layer, place]``."""
    found = [re.match(rf"L\dH\d: {measure} (-?[\d.e-]+)", label) for label in labels(page)]
    return np.array([float(match[1]) for match in found]).reshape(4, -1)


def legend(page: Page) -> list[str]:
    return page.get_by_test_id("stMain").locator(".head-grid .ticks span").all_inner_texts()


def shares(page: Page) -> list[float]:
    sentence = page.get_by_text("Of the variance of the keys of").inner_text()
    return [_number(each) for each in re.search(SHARES, sentence).groups()]


def _number(text: str) -> float:
    power = "⁰¹²³⁴⁵⁶⁷⁸⁹".index(text[-1]) if "×" in text else 0
    return float(text.strip("(").split(" ")[0]) / 10**power


def test_every_measure_is_drawn(landing):
    page, first, seen = landing(), next(iter(MEASURES)), set()
    for title, measure in list(MEASURES.items())[::-1]:
        choose(page, COLOUR, title)
        expect(page.get_by_test_id("stMain").locator(".head-grid .legend .title")).to_have_text(
            measure.declared.unit
        )
        settle(page)
        assert parameter(page, "measure") == (None if title == first else title)
        begins = r"L\dH\d: " + ("ETC" if measure.question.name == "etc" else re.escape(title))
        said = labels(page)
        assert 32 == len(set(said))
        assert all(
            re.match(rf"{begins} .* tokens? at n = \d+, (local|slow decay|uniform), ", each)
            for each in said
        )
        faces = cells(page).evaluate_all(FACES)
        assert len(set(faces)) > 1
        assert len(legend(page)) > 1
        seen.add(tuple(faces))
        if title == "behaviour group":
            assert [*BEHAVIOURS] == legend(page)
            assert all(re.match(rf"{begins} ({'|'.join(BEHAVIOURS)});", each) for each in said)
            kinds = [re.match(rf"{begins} (.*?);", each)[1] for each in said]
            assert len(set(zip(kinds, faces, strict=True))) == len(set(kinds)) == len(set(faces))
        no_trouble(page)
    assert len(MEASURES) == len(seen)


def test_order_and_choice_by_a_measure(landing):
    measure = "attention to the previous token"
    page = landing(measure=measure, order="largest first", head="L1H1")
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
    held = arrays(page, "etc")["previous_mass"]
    np.testing.assert_allclose(numbers(page, measure), held, atol=5e-3)
    with tool(page, "etc", "Formula") as told:
        expect(told.get_by_text("Source.")).to_be_visible()
    no_trouble(page)
    landing(measure="<b>luck</b>")
    colour = page.get_by_role("combobox", name=COLOUR, exact=True)
    assert next(iter(MEASURES)) == colour.input_value()
    no_trouble(page)


def test_additivity(page, server):
    visit(page, server.link("/positional_kernels", context=CONTEXT))
    drawn(page, ["shares", "similarity"])
    before = shares(page)
    assert 1 == pytest.approx(sum(before), abs=2e-3)
    file = arrays(page, "shares")
    held = np.stack([file[f"{name}_share"] for name in ("position", "content", "interaction")])
    np.testing.assert_allclose(held.sum(axis=0), 1, atol=1e-6)
    np.testing.assert_allclose(held[:, 6], before, atol=1e-3)  # L2H6 is shown first
    with redraws(page, "shares"), redraws(page, "similarity"):
        side_cell(page, "L1H3").click()
    assert before != shares(page)
    assert 1 == pytest.approx(sum(shares(page)), abs=2e-3)
    expect(title_of(page, "similarity")).to_have_text("Content similarity across positions, L1H3")
    expect(title_of(page, "shares")).to_contain_text("layer 1")
    assert traces(page, "similarity")
    no_trouble(page)
