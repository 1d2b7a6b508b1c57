"""Explore in a browser: axes and colour, heads chosen by loop, box and name, tables of others."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest
from playwright.sync_api import Page, expect

import poskernel_core as pk
from tests.support.bound import bound, fine, opened
from tests.support.visit import (
    choose,
    complains,
    console,
    go,
    no_trouble,
    parameter,
    pick,
    redraws,
    settle,
    shown,
    table,
    title_of,
    tool,
    until,
    values,
    visit,
)
from tests.support.visit_tables import opens

FIGURE = ".st-key-figure-heads"
PLACES = """name => {
  const plot = document.querySelector(".st-key-figure-heads .js-plotly-plot");
  const layout = plot._fullLayout, box = plot.getBoundingClientRect();
  for (const trace of plot._fullData) {
    const at = (trace.customdata ?? []).findIndex(row => row[0] === name);
    if (at >= 0) return [
      box.x + layout.xaxis._offset + layout.xaxis.d2p(trace.x[at]),
      box.y + layout.yaxis._offset + layout.yaxis.d2p(trace.y[at]),
    ];
  }
  return null;
}"""
"""Where a head's point stands in the window."""
DRAGS = """mode => {
  const plot = document.querySelector(".st-key-figure-heads .js-plotly-plot");
  return plot._fullLayout.dragmode === mode;
}"""
"""Whether a drag over the figure does this."""
HEADS = "Heads chosen"
HEADVIS = [
    {
        "layer": layer,
        "head": head,
        "self_attention_score": 0.5,
        "qk_distance": layer * 8 + head,
        "induction_score": None,
    }
    for layer in range(4)
    for head in range(8)
]


@pytest.fixture
def explore(page: Page, server):
    return opens(page, server, "/explore", ready="heads")


def place(page: Page, head: str) -> tuple[float, float]:
    page.locator(f"{FIGURE} .js-plotly-plot").scroll_into_view_if_needed()
    x, y = page.evaluate(PLACES, head)
    return x, y


def chosen(page: Page) -> list[str]:
    return page.get_by_role("textbox", name=HEADS).input_value().split()


def draw(page: Page, tool_name: str, corners: list[tuple[float, float]]) -> None:
    """Draw a loop or a box through corners, as shares of the figure's width and height."""
    pick(page, tool_name)
    plot = page.locator(f"{FIGURE} .js-plotly-plot")
    plot.scroll_into_view_if_needed()
    mode = {"loop": "lasso", "box": "select"}[tool_name]
    until(page, DRAGS, mode)
    before = chosen(page)
    box = plot.locator(".nsewdrag").first.bounding_box()
    at = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
    page.mouse.move(*at[0])
    page.mouse.down()
    for x, y in at[1:]:
        page.mouse.move(x, y, steps=8)
    page.mouse.up()
    until(page, """before => {
      const field = document.querySelector("input[aria-label='Heads chosen']");
      return field.value !== before;
    }""", " ".join(before))  # fmt: skip
    settle(page)


def lists(page: Page, count: int) -> None:
    """The table has so many heads, its own heading left out."""
    expect(table(page, "explored")).to_have_attribute("aria-rowcount", str(count + 1))


@pytest.mark.browser
def test_the_plane(explore):
    page = explore()
    complaints = console(page)
    assert {"Across": "effective token count", "Upwards": "attention entropy",
            "Colour": "attention sink"} == shown(page, "Across", "Upwards", "Colour")  # fmt: skip
    expect(title_of(page, "heads")).to_have_text("Attention entropy against effective token count")
    choosing_by_hand(page)
    with redraws(page, "heads"):
        choose(page, "Colour", "kind of kernel")
    expect(page.locator(f"{FIGURE} .legendtext")).to_have_text(["local", "slow decay", "uniform"])
    arranged_by_kernels(page)
    no_trouble(page)
    assert [] == complaints


def arranged_by_kernels(page: Page) -> None:
    """A point tells its kernel and its colour, the stress is told, click and box choose heads."""
    pick(page, "near kernels")
    expect(title_of(page, "heads")).to_have_text("Heads with near kernels")
    assert "near kernels" == parameter(page, "arrange")
    expect(page.get_by_role("combobox", name="Across")).to_have_count(0)
    told = page.get_by_text(re.compile(r"Distances between points differ by \d+ %"))
    expect(told).to_be_visible()
    pick(page, "click")
    until(page, DRAGS, "pan")
    with redraws(page, "heads"):
        page.mouse.move(*place(page, "L2H5"))
        expect(page.locator(f"{FIGURE} .hovertext")).to_contain_text(
            re.compile("L2H5.*kernel: [▁-█]{20,32}kind of kernel: (local|slow decay|uniform)")
        )
        page.mouse.down()
        page.mouse.up()
    assert "L2H5" == values(page)["Head"] == parameter(page, "head")
    assert [] == chosen(page)
    draw(page, "box", [(0.02, 0.02), (0.98, 0.98)])
    lists(page, 32)
    with tool(page, "heads", "Formula") as body:
        expect(body.get_by_text("classical scaling")).to_be_visible()
    pick(page, "two measures")
    page.get_by_role("button", name="Choose none").click()
    settle(page)


def choosing_by_hand(page: Page) -> None:
    """A loop and a box choose what is in them; the table lists them; a click selects a head."""
    lists(page, 32)
    draw(page, "loop", [(0.02, 0.02), (0.98, 0.02), (0.98, 0.45), (0.02, 0.45)])
    by_loop = chosen(page)
    assert 1 < len(by_loop) < 32
    assert "L2H6" not in by_loop
    assert by_loop == parameter(page, "heads").split()
    lists(page, len(by_loop))
    expect(page.get_by_text(f"{len(by_loop)} of 32 heads.")).to_be_visible()
    x, y = place(page, "L2H6")
    plot = page.locator(f"{FIGURE} .nsewdrag").first.bounding_box()
    at = ((x - plot["x"]) / plot["width"], (y - plot["y"]) / plot["height"])
    draw(page, "box", [(at[0] - 0.02, at[1] - 0.05), (at[0] + 0.02, at[1] + 0.05)])
    assert ["L2H6"] == chosen(page)
    lists(page, 1)
    page.get_by_role("button", name="Choose none").click()
    settle(page)
    assert [] == chosen(page)
    lists(page, 32)


def test_names_of_heads(shipped_only):
    """They are typed, or come with a link; what is no head of the model is said."""
    app = opened("explore", heads="L0H1, l3h2")
    many = " ".join(f"L{layer}H{head}" for layer in range(3) for head in range(3))
    for typed, count in (("", 2), ("L0H1 L3H2 L1H0", 3), (many, 9), ("L0H1 L9H9", 1)):
        if typed:
            bound(app)["heads"].set_value(typed).run()
        assert count == len(app.dataframe[0].value)
        table = app.dataframe[0]
        seen = pa.ipc.open_stream(table.proto.arrow_data.styler.display_values).read_pandas()
        column = "effective token count (tokens)"
        assert all("±" in each for each in seen[column])
        assert table.value[column].dtype == float  # by which it sorts
        (pin,) = (each for each in app.button if each.label == "Pin these heads")
        assert (count > 8) == pin.disabled
        if count == 2:
            (link,) = (each.value for each in app.markdown if "Silence these" in each.value)
            assert "interventions?" in link
            assert "manyheads=L0H1%2C+L3H2#many-texts" in link
        told = "9 heads are chosen: choose 8 or fewer"
        assert (count > 8) == any(told in each.value for each in app.caption)
        if count == 3:
            pin.click().run()
            assert 3 == len("".join(app.query_params["pins"]).split(","))
    (said,) = (each.value.replace("\\", "") for each in app.error)
    assert "from L0H0 to L3H7 in this model; got 'L9H9'" in said


def test_the_share_of_one_group_of_texts_is_a_column(computed):
    """Of the measures of both axes, from the answer of How many texts; only if it is asked for."""
    sizes = {"context": "64", "windows": "50", "query": "47", "y": "attention entropy"}
    app = fine(opened("explore", decides="true", **sizes))
    table = app.dataframe[0].value
    for measure in ("effective token count", "attention entropy"):
        params = {"measure": measure, "query": 47}
        answer = pk.show(
            "how-many-texts", "demo-gpt2", engine=computed, context=64, windows=50, params=params
        )
        expected = [max(column) for column in answer.values["influence"].reshape(10, -1).T]
        column = f"{measure}: one group of texts (share)"
        np.testing.assert_allclose(table[column], expected)
        assert 0.1 <= min(expected) < max(expected) <= 1
    without = fine(opened("explore", **sizes)).dataframe[0].value
    assert not any("one group of texts" in column for column in without)


@pytest.mark.browser
def test_tables(explore, new_context):
    page = explore()
    tables_of_others(page)
    a_table_is_its_readers_own(page, new_context().new_page())
    no_trouble(page)


def tables_of_others(page: Page) -> None:
    """A table's columns are offered on both axes, as colour and in the list; its name is told."""
    page.get_by_role("button", name="Tables of others").click()
    files = page.locator("input[type=file]")
    files.set_input_files(
        [
            {"name": "scatter_data.json", "mimeType": "application/json",
             "buffer": json.dumps(HEADVIS).encode()},
            {"name": "other_model.tsv", "mimeType": "text/tab-separated-values",
             "buffer": b"1\t2\n3\t4\n"},
        ]
    )  # fmt: skip
    expect(page.get_by_text("scatter_data.json, HeadVis")).to_be_visible()
    settle(page)
    page.keyboard.press("Escape")
    complains(page, "Cannot use the table 'other_model.tsv': it is of another model: expected 4")
    with redraws(page, "heads"):
        choose(page, "Across", "qk_distance, scatter_data.json")
    expect(page.locator(f"{FIGURE} .xtitle")).to_contain_text("from scatter_data.json")
    expect(table(page, "explored")).to_contain_text("qk_distance, from scatter_data.json")
    with redraws(page, "heads"):
        choose(page, "Upwards", "qk_distance, scatter_data.json")
    with redraws(page, "heads"):
        choose(page, "Colour", "induction_score, scatter_data.json")
    with tool(page, "heads", "Reading") as body:
        expect(body.get_by_text(re.compile(r"Errors count .+ 95 % interval"))).to_be_visible()
        expect(body.get_by_text("qk_distance from scatter_data.json")).to_be_visible()
    page.get_by_role("button", name="Tables of others").click()
    page.get_by_role("button", name="Remove other_model.tsv").click()
    settle(page)
    expect(page.get_by_test_id("stAlertContentError")).to_have_count(0)
    page.get_by_role("button", name="Remove scatter_data.json").click()
    settle(page)
    page.keyboard.press("Escape")
    assert {"Across": "effective token count"} == shown(page, "Across")


def a_table_is_its_readers_own(page: Page, other: Page) -> None:
    page.get_by_role("button", name="Tables of others").click()
    page.locator("input[type=file]").set_input_files(
        [{"name": "mine.csv", "mimeType": "text/csv", "buffer": b"layer,head,own\n0,1,5\n"}]
    )
    expect(page.get_by_text("mine.csv, a table (CSV)")).to_be_visible()
    settle(page)
    page.keyboard.press("Escape")
    go(page, "Kernel")
    go(page, "Explore")
    expect(page.get_by_text("mine.csv, a table (CSV)")).to_be_visible()
    visit(other, page.url)
    expect(other.get_by_text("mine.csv")).to_have_count(0)
