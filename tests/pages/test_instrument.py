"""The instrument beside every page, in a browser: one head everywhere, drawn where the eye is."""

import re
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from poskernel_core.analyses import find
from poskernel_core.engine.engine import Engine, describe_run
from poskernel_core.engine.plan import plan_of
from poskernel_core.models.stored import PACKAGED
from poskernel_core.storage.store import Store
from tests.support.visit import (
    LATER,
    cell,
    curve,
    finding_of,
    go,
    head_shown,
    no_trouble,
    settle,
    side_cell,
    values,
    visit,
)

pytestmark = pytest.mark.browser

CENTRE = """point => {
  point.scrollIntoView({ block: "center" });
  const { x, y, width, height } = point.getBoundingClientRect();
  return [x + width / 2, y + height / 2];
}"""
FIELD, MODEL = "Find and go", "demo-gpt2"
TITLE = PACKAGED["smollm2-135m-instruct-q4"].title


@pytest.fixture
def opened(page: Page, still):
    def there(path: str = "/positional_kernels", **chosen: object) -> Page:
        query = "&".join(f"{name}={value}" for name, value in chosen.items())
        visit(page, f"{still.url}{path}?{query}")
        expect(head_shown(page)).to_contain_text("at n = ")  # its numbers are there
        return page

    return there


def asked(page: Page) -> list[str]:
    return parse_qs(urlsplit(page.url).query).get("head", [])


def test_one_head_is_never_drawn_under_the_name_of_another(opened):
    """Choices in quick succession: whenever one looks, a name has its own curve."""
    page, known = opened(head="L3H4"), {}
    for name in ("L7H1", "L20H8", "L3H4", "L7H1", "L29H0", "L20H8"):
        side_cell(page, name).click()
        drawn, shape = curve(page)
        assert known.setdefault(drawn, shape) == shape
    settle(page)
    assert ["L20H8 at n = 400", known["L20H8 at n = 400"]] == curve(page)
    assert len(known) == len(set(known.values())) > 2
    assert ["L20H8"] == asked(page)
    expect(page.locator("html")).not_to_have_attribute("data-behind", "")
    what_is_pointed_at_stays_while_the_server_follows(page)
    head_and_position_stay_through_back_and_reload(page)
    no_trouble(page)


def test_the_numbers_are_those_of_the_result(opened, tmp_path, monkeypatch):
    """What is told where one points, and how high the points stand, against the stored result."""
    monkeypatch.setenv("POSKERNEL_SHIPPED", "1")
    page, engine, question = (
        opened(model="demo-gpt2", head="L2H6"),
        Engine(Store(tmp_path)),
        find("kernel"),
    )
    asked = plan_of(question, describe_run(MODEL), question.params(query=400))
    found = engine.cached(asked)
    engine.close()
    kernel = found.values["kernel"][2, 6, 4:401][::-1]
    points = page.locator(".curve .point.kernel")
    heights = points.evaluate_all("all => all.map(each => +each.getAttribute('cy'))")
    assert 16 == len(heights)
    ruler = np.polyfit(heights, kernel[:16], 1)
    np.testing.assert_allclose(np.polyval(ruler, heights), kernel[:16], atol=1e-3 * kernel.max())
    for offset in (0, 1, 7):
        x, y = points.nth(offset).evaluate(CENTRE)
        page.mouse.move(x, y)
        expect(page.locator(".curve .said")).to_contain_text(f"offset {offset}: ")
        said = page.locator(".curve .said").inner_text()
        told = re.match(rf"offset {offset}: kernel ([\d.]+) ± ([\d.]+), observed ([\d.]+)", said)
        at = 2, 6, 400 - offset
        given = [
            found.values["kernel"][at],
            found.errors["kernel"][at],
            found.values["observed"][at],
        ]
        np.testing.assert_allclose([*map(float, told.groups())], given, rtol=0.02)


def test_pointing_keys_axes_and_words(opened):
    page = opened(head="L3H4")
    pointing_shows_another_head_and_asks_nobody(page)
    logarithmic_axes_are_in_the_address(page)
    the_grid_is_walked_by_keys_alone(page)
    arrow_keys_lead_on_from_where_one_is(page)
    find_and_go(page)


def pointing_shows_another_head_and_asks_nobody(page: Page) -> None:
    before = page.evaluate("window.visitor.asked")
    side_cell(page, "L7H1").hover()
    expect(head_shown(page)).to_have_text("L7H1 at n = 400")
    expect(finding_of(page, "kernel")).to_be_hidden()
    page.get_by_role("heading", level=1).hover()
    expect(head_shown(page)).to_have_text("L3H4 at n = 400")
    expect(finding_of(page, "kernel")).to_be_visible()
    assert before == page.evaluate("window.visitor.asked")


def what_is_pointed_at_stays_while_the_server_follows(page: Page) -> None:
    side_cell(page, "L7H1").click()
    side_cell(page, "L20H8").hover()
    settle(page)
    assert ["L7H1"] == asked(page)
    expect(head_shown(page)).to_have_text("L20H8 at n = 400")
    go(page, "Map")
    expect(head_shown(page)).to_have_text("L7H1 at n = 400")


def head_and_position_stay_through_back_and_reload(page: Page) -> None:
    page.locator(".position input").focus()
    page.keyboard.press("ArrowLeft")
    expect(head_shown(page)).to_have_text("L7H1 at n = 319")
    settle(page)
    chosen = values(page)
    assert ("L7H1", "319") == (chosen["Head"], chosen["query"])
    for title in ("Overview", "Spectrum", "Kernel"):
        go(page, title)
        assert chosen == values(page)
        expect(page.locator("[data-testid=stTopNavSection][aria-current]")).to_have_count(1)
    page.go_back()
    settle(page)
    assert chosen == values(page)
    page.reload()
    settle(page)
    assert chosen == values(page)


def find_and_go(page: Page) -> None:
    """A head as people write it, a measure, a page; nothing of that name."""
    page.keyboard.press("/")
    field = page.get_by_role("combobox", name=FIELD)
    expect(field).to_be_focused()
    page.keyboard.type("20.8")
    page.keyboard.press("Enter")
    expect(head_shown(page)).to_have_text("L20H8 at n = 400")
    settle(page)
    page.keyboard.press("/")
    page.keyboard.type("nonsense")
    expect(page.get_by_text("Nothing of that name here.")).to_be_visible()
    field.fill("induction")  # what heads do is found in the results that come with the model
    expect(page.get_by_role("option").nth(1)).to_have_text(re.compile("score 0.85.*head L18H6"))
    for typed, found in (("patch", "Heads between two prompts Interventions"),
                         ("ablate", "Heads ablated on many texts Interventions"),
                         ("logit", "What makes a token's logit Text")):  # fmt: skip
        field.fill(typed)
        expect(page.get_by_role("option", name=found)).to_be_visible()
    field.fill("attention sink")
    expect(page.get_by_role("option").first).to_contain_text("measure")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Map")).to_be_visible()
    settle(page)
    assert "attention+sink" in page.url
    page.wait_for_timeout(LATER)
    page.keyboard.press("/")
    page.keyboard.type("spectr")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Spectrum")).to_be_visible()
    settle(page)
    page.go_back()
    expect(page.get_by_role("heading", level=1, name="Map")).to_be_visible()
    settle(page)
    assert "L20H8" == values(page)["Head"]
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()


def arrow_keys_lead_on_from_where_one_is(page: Page) -> None:
    """After the search field, without any focus, and after a click beside the grid."""

    def pressed(key: str, name: str) -> None:
        page.keyboard.press(key)
        expect(head_shown(page)).to_have_text(f"{name} at n = 400")

    page.keyboard.press("/")
    page.keyboard.type("5.3")
    pressed("Enter", "L5H3")
    pressed("ArrowDown", "L6H3")
    page.get_by_role("heading", level=1).click()
    expect(side_cell(page, "L6H3")).not_to_be_focused()
    pressed("ArrowRight", "L6H4")
    page.get_by_role("heading", level=1).click()
    page.get_by_test_id("stSidebar").locator(".head-grid .legend .title").click()
    pressed("ArrowUp", "L5H4")
    settle(page)


def the_grid_is_walked_by_keys_alone(page: Page) -> None:
    """One tab stop; a screen reader hears rows, columns, and each head with its number."""
    grid = page.get_by_test_id("stSidebar").get_by_role("grid")
    expect(grid.locator("[tabindex='0']")).to_have_count(1)
    side_cell(page, "L3H4").focus()
    for key, name in (
        ("PageUp", "L0H4"), ("ArrowDown", "L1H4"), ("ArrowRight", "L1H5"), ("End", "L1H8"),
        ("ArrowDown", "L2H8"), ("ArrowLeft", "L2H7"), ("Home", "L2H0"),
    ):  # fmt: skip
        page.keyboard.press(key)
        expect(head_shown(page)).to_have_text(f"{name} at n = 400")
        expect(side_cell(page, name)).to_be_focused()
    side_cell(page, "L2H0").evaluate(THREE_KEYS)
    expect(side_cell(page, "L5H0")).to_be_focused()
    expect(head_shown(page)).to_have_text("L5H0 at n = 400")
    side_cell(page, "L5H0").evaluate(TWO_KEYS_AND_A_CLICK)
    expect(head_shown(page)).to_have_text("L5H1 at n = 400")
    settle(page)
    expect(side_cell(page, "L5H1")).to_be_focused()
    for key in ("ArrowUp", "ArrowUp", "ArrowUp", "ArrowLeft"):
        page.keyboard.press(key)
    settle(page)
    expect(side_cell(page, "L2H0")).to_be_focused()
    heard = grid.aria_snapshot()
    assert re.search(r'gridcell "L2H0: effective token count [\d.]+ .*" \[selected\]', heard)
    assert 'rowheader "L2"' in heard


THREE_KEYS = """cell => {
  for (let pressed = 0; pressed < 3; pressed++)
    cell.getRootNode().activeElement.dispatchEvent(
      new KeyboardEvent("keydown", { key: "ArrowDown", bubbles: true }));
}"""
"""Pressed before anything is painted: none is lost."""
TWO_KEYS_AND_A_CLICK = """cell => {
  const press = () => cell.getRootNode().activeElement.dispatchEvent(
    new KeyboardEvent("keydown", { key: "ArrowDown", bubbles: true }));
  press();
  press();
  cell.nextElementSibling.click();
}"""
"""The click has the last word."""


def logarithmic_axes_are_in_the_address(page: Page) -> None:
    box = page.get_by_label("log attention")
    expect(box).not_to_be_checked()
    box.check()
    expect(page.locator(".curve")).to_contain_text("share of attention per token (log scale)")
    settle(page)
    assert "attention" in parse_qs(urlsplit(page.url).query)["log"]
    page.reload()
    expect(page.get_by_label("log attention")).to_be_checked()
    settle(page)


def test_on_a_phone_the_grid_opens_from_a_bar_and_the_menu_closes(new_context, still):
    """The phone is another visitor's: the browser keeps that the menu was closed."""
    page = new_context().new_page()
    page.set_viewport_size({"width": 390, "height": 844})
    visit(page, f"{still.url}/positional_kernels?head=L3H4")
    bar = page.locator(".st-key-above")
    bar.get_by_text(f"{TITLE} · L3H4 · n = 400").click()
    bar.locator("[role=gridcell][data-name=L7H1]").click()
    expect(bar.get_by_text(f"{TITLE} · L7H1 · n = 400")).to_be_visible()
    expect(head_shown(page)).to_have_text("L7H1 at n = 400")
    settle(page)
    assert ["L7H1"] == asked(page)
    page.get_by_test_id("stExpandSidebarButton").click()
    page.get_by_test_id("stSidebarNavLink").filter(has_text=re.compile("^Spectrum$")).click()
    expect(page.get_by_role("heading", level=1, name="Spectrum")).to_be_visible()
    expect(page.get_by_test_id("stSidebar")).to_have_attribute("data-collapsed", "true")


def test_what_kernels_leave_out_is_shown(page, still):
    """The Map marks heads with a sink; the curve begins with its share, of any head."""
    visit(page, f"{still.url}/?head=L18H8")
    main, drawing = page.get_by_test_id("stMain"), page.locator(".st-key-card-kernel .curve")
    assert 100 < main.locator("[data-sink]").filter(visible=True).count() < 200
    expect(
        main.get_by_text("0.3 or more of its attention on one of the first 4 keys")
    ).to_be_visible()
    sentence = finding_of(page, "kernel")
    expect(sentence).to_contain_text("On average the first 4 keys get 1.00 of all its attention.")
    expect(drawing).to_contain_text("1.00 of all attention: the first 4 keys")
    whole, filled = (drawing.locator(f"rect.{each}").bounding_box() for each in ("whole", "parked"))
    assert abs(filled["width"] / whole["width"] - 1) < 0.01
    cell(page, "L16H0").hover()
    expect(drawing).to_contain_text("0.13 of all attention: the first 4 keys")
    assert not main.locator("[data-name=L16H0][data-sink]").count()


@pytest.mark.parametrize("width", [1400, 390])
def test_the_title_of_the_model_is_not_cut_off(new_context, still, width):
    """In its field, and in the bar of a phone, which is not higher than the head of the page."""
    page = new_context(viewport={"width": width, "height": 844}).new_page()
    visit(page, f"{still.url}/?model=smollm2-135m-instruct-q4")
    if width < 769:
        bar = page.locator(".st-key-above summary")
        expect(bar).to_contain_text(TITLE)
        assert bar.evaluate("bar => bar.getBoundingClientRect().bottom") <= 60
        page.get_by_test_id("stExpandSidebarButton").click()
    field = page.get_by_role("combobox", name="Model")
    expect(field).to_have_value(TITLE)
    assert field.evaluate("field => field.scrollWidth <= field.clientWidth")
