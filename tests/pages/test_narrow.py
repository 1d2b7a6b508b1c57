"""Narrow windows: the grid of heads, words on numbers."""

from itertools import combinations

import pytest
from playwright.sync_api import expect
from transformers import LlamaConfig, LlamaForCausalLM

from bench.pages import PHONE, SHIFT
from poskernel_core.models import curated
from tests.support.server import ROOT, serve
from tests.support.visit import settle, visit

pytestmark = pytest.mark.browser

STORED = curated.CURATED[0].name
BOXES = "all => all.map(each => each.getBoundingClientRect().toJSON())"
"""Where things stand at one moment."""
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


@pytest.mark.parametrize(
    "name", ["explore", "induction_recency", "interventions", "position_sources"]
)
def test_little_moves_while_a_page_is_drawn_on_a_phone(page, still, name):
    page.set_viewport_size({"width": PHONE, "height": 900})
    visit(page, f"{still.url}/{name}")
    assert page.evaluate(SHIFT) < 0.05


def test_labels_of_a_circuit_do_not_touch_on_a_phone(page, still):
    page.set_viewport_size({"width": PHONE, "height": 900})
    visit(page, f"{still.url}/interventions?model={STORED}&mode=From heads to a circuit")
    labels = page.locator(".st-key-card-network .textpoint text")
    expect(labels).not_to_have_count(0)
    boxes = labels.evaluate_all(BOXES)
    assert all(
        one["x"] + one["width"] <= other["x"]
        or other["x"] + other["width"] <= one["x"]
        or one["y"] + one["height"] <= other["y"] + 3  # a line is higher than its letters
        or other["y"] + other["height"] <= one["y"] + 3
        for one, other in combinations(boxes, 2)
    )


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


def test_heads_side_by_side_are_all_seen_on_a_phone(page):
    """The name of a measure stands above the numbers of three heads, none of which is cut off."""
    style = (ROOT / "serving" / "style.css").read_text(encoding="utf-8")
    cells = ["attention sink", *["0.006912 ±\N{NO-BREAK SPACE}0.000044 (+88.6)"] * 3]
    row = "".join(f"<td>{cell}</td>" for cell in cells)
    page.set_viewport_size({"width": 390, "height": 800})
    page.set_content(
        f"<style>{style}</style><div class='st-key-card-measures' style='width: 332px'>"
        f"<div data-testid='stMarkdownContainer'><table><tr>{row}</tr></table></div></div>"
    )
    name, *numbers = page.locator("td").evaluate_all(BOXES)
    assert 1 == len({each["top"] for each in numbers})
    assert all(each["top"] >= name["bottom"] - 1 for each in numbers)
    card = page.locator(".st-key-card-measures").bounding_box()
    assert max(each["right"] for each in numbers) <= card["x"] + card["width"] + 1


def test_the_tools_of_a_table_cover_nothing_on_a_touch_screen(new_context, still):
    """There they are always seen: below the buttons above the table."""
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    page = new_context(**phone).new_page()
    visit(page, f"{still.url}/position_vs_token?model=demo-gpt2")
    table = page.locator(".st-key-look-back-table")
    table.scroll_into_view_if_needed()
    tools = table.get_by_test_id("stElementToolbar")
    buttons, tools = page.locator(".st-key-lookk").or_(tools).evaluate_all(BOXES)
    assert tools["y"] >= buttons["bottom"]


def test_the_heads_of_the_widest_models_are_beside_every_page(page, tmp_path):
    """80 × 64 of them, all in view, without a result."""
    config = LlamaConfig(
        vocab_size=7, hidden_size=64, intermediate_size=3, num_hidden_layers=80,
        num_attention_heads=64, num_key_value_heads=64, head_dim=2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path / "wide")
    log = tmp_path / "server.log"
    with serve(tmp_path / "cache", log, models=str(tmp_path / "wide")) as server:
        visit(page, server.link("/methods", model=tmp_path / "wide"))
        side = page.get_by_test_id("stSidebar")
        for name in ("L0H0", "L79H63"):
            expect(side.locator(f"[data-name={name}]")).to_be_visible()
        assert not side.locator(".head-grid.scrolls").count()
        room = side.locator(".st-key-room-grid-beside")
        high, shown = room.evaluate("node => [node.scrollHeight, node.clientHeight]")
        assert high <= shown
