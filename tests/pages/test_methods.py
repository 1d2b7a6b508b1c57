"""The page of methods in a browser: definitions, and the reproduction ledger."""

import json

import pytest
from playwright.sync_api import Locator, Page, expect

from poskernel_core.analyses.definitions import methods
from poskernel_core.ledger.compare import brief
from poskernel_core.ledger.published import figures_of, known_models
from tests.support.visit import (
    console,
    flip,
    no_trouble,
    parameter,
    pick,
    seek,
    settle,
    shown,
    visit,
)
from tests.support.visit_tables import opens

pytestmark = pytest.mark.browser

PAGE, MODEL, HELD = "/methods", "demo-attn-2l", "gpt2"
LEDGER, OF, NUMBERS = "Reproduction ledger", "Figures published for", "Numbers of"
FIGURES = figures_of(HELD)
METHODS = sorted(methods(), key=lambda method: method.runs_model)
"""As the page has them: those that run the model again come after the others."""
COMPUTE = f"Compute all {len(FIGURES)} figures on this machine"
TOLD = """folds => folds.map(fold => ({
  words: fold.innerText,
  strong: [...fold.querySelectorAll("strong")].map(each => each.innerText),
  formulas: fold.querySelectorAll(".katex").length,
  tables: fold.querySelectorAll("[data-testid=stDataFrame]").length,
}))"""
PARTS = ("Values", "Formula.", "Choices.", "Limits.", "Source.")


@pytest.fixture
def show(page: Page, server):
    return opens(page, server, PAGE, width=2200, model=MODEL)


def folds(page: Page) -> Locator:
    return page.get_by_test_id("stMain").get_by_test_id("stExpander")


def column(page: Page, name: str, number: int = 0) -> list[str]:
    """What a column shows of the ledger, or of the table behind it."""
    frame = page.get_by_test_id("stMain").get_by_test_id("stDataFrame").nth(number)
    frame.scroll_into_view_if_needed()
    expect(frame.locator("th").get_by_text(name, exact=True)).to_be_attached()
    place = frame.locator("th").all_text_contents().index(name)
    return frame.locator(f"tbody td:nth-child({place + 1})").all_text_contents()


def test_definitions_and_the_ledger(page, show, new_context):
    trouble = console(page)
    show()
    expect(folds(page)).to_have_count(len(METHODS))
    tables = [1 if method.params else 0 for method in METHODS]
    for fold in folds(page).all()[::-1]:  # what opens moves only what is open already
        fold.locator("summary").click()
    expect(folds(page).locator("details[open]")).to_have_count(len(METHODS))
    expect(folds(page).get_by_test_id("stDataFrame")).to_have_count(sum(tables))
    settle(page)
    told = folds(page).evaluate_all(TOLD)
    for each, method, held in zip(told, METHODS, tables, strict=True):
        assert f"{method.title} ({method.name})" in each["words"]
        assert "python -m poskernel_core show" in each["words"]
        assert set(PARTS) <= {*each["strong"]}
        assert (held, True) == (each["tables"], each["formulas"] > 0)
    expect(page.locator(".katex-error")).to_have_count(0)
    expect(page.get_by_test_id("stMain").get_by_text("$", exact=False)).to_have_count(0)
    one_definition(page)
    a_model_without_published_figures(page)
    nothing_is_filled_in_before_it_is_computed(page)
    the_ledger_computed(page)
    numbers_of_one_figure(page, new_context().new_page())
    assert [] == trouble


def one_definition(page: Page) -> None:
    seek(page, "Definition", "position-zero")
    expect(folds(page)).to_have_count(1)
    settle(page)
    assert "position-zero" == parameter(page, "method")
    expect(folds(page).get_by_text("Formula.", exact=True)).to_be_visible()
    seek(page, "Definition", "all")
    expect(folds(page)).to_have_count(len(METHODS))
    settle(page)
    assert parameter(page, "method") is None


def a_model_without_published_figures(page: Page) -> None:
    """The ledger says so, and which have some; a name of these brings figures and a warning."""
    pick(page, LEDGER)
    assert LEDGER == parameter(page, "part")
    assert {OF: MODEL} == shown(page, OF)
    expect(page.get_by_text(f"No figures were published for {MODEL}")).to_be_visible()
    for name in known_models():
        expect(page.get_by_test_id("stAlert")).to_contain_text(name)
    expect(page.get_by_test_id("stMain").get_by_role("switch")).to_have_count(0)
    seek(page, OF, HELD)
    warning = f"Computed on {MODEL}, published for {HELD}"
    expect(page.get_by_text(warning)).to_be_visible()
    settle(page)
    assert HELD == parameter(page, "published")
    no_trouble(page)


def nothing_is_filled_in_before_it_is_computed(page: Page) -> None:
    assert ["not computed yet"] * len(FIGURES) == column(page, "verdict")
    assert [figure.figure for figure in FIGURES] == column(page, "published figure")
    assert [brief(figure.published) for figure in FIGURES] == column(page, "published")
    for name in ("ours", "within"):
        assert {""} == set(column(page, name))
    assert {""} >= set(column(page, "largest difference")) - {"None"}
    expect(page.get_by_role("button", name="Download the ledger")).to_have_count(0)
    for figure in FIGURES[1:3]:
        seek(page, NUMBERS, figure.id)
        expect(page.get_by_text(figure.figure, exact=False).last).to_be_visible()
        settle(page)
        assert figure.id == parameter(page, "ledgerid")
    no_trouble(page)


def ledger(page: Page) -> list[dict[str, object]]:
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download the ledger").click()
    return json.loads(waiting.value.path().read_text("utf-8"))


def the_ledger_computed(page: Page) -> None:
    flip(page, COMPUTE, True)
    lines = ledger(page)
    assert "true" == parameter(page, "compute")
    assert [figure.id for figure in FIGURES] == [line["id"] for line in lines]
    told = [verdict.split(" ", 1)[1] for verdict in column(page, "verdict")]
    assert [line["verdict"] for line in lines] == told
    assert {"differs", "not computed"} <= set(told)
    ours = ["" if line["ours"] is None else brief(line["ours"], line["errors"]) for line in lines]
    assert ours == column(page, "ours")
    for line in lines:
        assert bool(line["why"]) == (line["verdict"] == "not computed") == (line["ours"] is None)
    no_trouble(page)


def numbers_of_one_figure(page: Page, other: Page) -> None:
    lines = ledger(page)
    without = next(line for line in lines if line["why"])
    seek(page, NUMBERS, without["id"])
    expect(page.get_by_test_id("stAlertContentInfo")).to_contain_text(without["why"])
    own = next(line for line in lines if not line["why"])
    seek(page, NUMBERS, own["id"])
    expect(page.get_by_test_id("stAlertContentInfo")).to_have_count(0)
    settle(page)
    assert [brief(own["ours"], own["errors"])] == column(page, "ours", 1)
    other.set_viewport_size({"width": 2200, "height": 1000})
    visit(other, page.url)
    assert {OF: HELD, NUMBERS: own["id"]} == shown(other, OF, NUMBERS)
    assert column(page, "verdict") == column(other, "verdict")
    no_trouble(other)
