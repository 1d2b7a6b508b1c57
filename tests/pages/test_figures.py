"""Figures as the browser draws them: when they come near, side by side, and saved for print."""

from xml.etree import ElementTree

import pytest
from playwright.sync_api import Page, expect

from tests.support.visit import finding_of, settle, side_cell, tool, until, visit
from tests.support.visit import still as stand_still

pytestmark = pytest.mark.browser

SVG = "{http://www.w3.org/2000/svg}"
PLAYER = "document.querySelector('.st-key-figure-morph .js-plotly-plot')"
RANGES = """() => [...document.querySelectorAll("[class*=st-key-figure-map-] .figure")]
  .map(each => [...each.layout.xaxis.range, ...each.layout.yaxis.range].map(Math.round).join())"""


@pytest.fixture
def url(still):
    return f"{still.url}/positional_kernels?model=demo-gpt2&head=L2H6"


def figure(page: Page, name: str):
    return page.locator(f".st-key-figure-{name} .figure")


def drawn(shown) -> str:
    """All words of a figure: names of heads, titles and ticks."""
    return shown.evaluate("each => each.textContent")


def test_a_figure_far_below_waits_until_one_scrolls_there(page: Page, url):
    """Its room is there before, so that nothing moves; here the browser is never idle."""
    page.add_init_script("window.requestIdleCallback = () => 0")
    page.goto(url)
    far = figure(page, "similarity")
    expect(far).to_have_attribute("data-due", "")
    figure(page, "map-kernel").scroll_into_view_if_needed()
    expect(figure(page, "map-kernel").locator(".main-svg").first).to_be_visible()
    before = far.bounding_box()
    assert 0 == far.locator(".main-svg").count()

    far.scroll_into_view_if_needed()

    expect(far.locator(".main-svg").first).to_be_visible()
    after = far.bounding_box()
    assert (before["width"], before["height"]) == (after["width"], after["height"])
    a_figure_that_waits_follows_the_last_choice(page)


def test_at_a_card_of_a_dark_page(page: Page, url):
    """A link leads to its card; maps side by side show the same part; a picture is for print."""
    page.emulate_media(color_scheme="dark")
    visit(page, f"{url}#similarity")
    expect(page.locator(".st-key-card-similarity")).to_be_in_viewport()
    page.get_by_role("button", name="On this page").click()
    links = page.get_by_test_id("stPopoverBody").get_by_role("link")
    expect(links).to_have_count(11)
    for link in links.all():
        expect(page.locator(link.get_attribute("href"))).to_be_attached()
    page.keyboard.press("Escape")
    maps_side_by_side_show_the_same_part(page)
    a_picture_is_for_print(page)


def maps_side_by_side_show_the_same_part(page: Page) -> None:
    figure(page, "map-kernel").scroll_into_view_if_needed()
    settle(page)
    whole = page.evaluate(RANGES)
    box = figure(page, "map-kernel").locator(".nsewdrag").first.bounding_box()
    x, y = box["x"], box["y"]

    page.mouse.move(x + 30, y + 40)
    page.mouse.down()
    page.mouse.move(x + 100, y + 110, steps=5)
    page.mouse.up()

    until(page, f"() => {{ const seen = ({RANGES})(); return seen[2] !== '{whole[2]}'; }}")
    part = page.evaluate(RANGES)
    assert 3 == len(part)
    assert 1 == len(set(part))
    assert part[0] != whole[0]


def a_picture_is_for_print(page: Page) -> None:
    """Saved from a dark page: on white, in black, as wide as a column, saying what it is."""
    with tool(page, "similarity", "Download") as body, page.expect_download() as made:
        body.get_by_role("button", name="SVG 85 mm").click()

    assert "demo-gpt2-L2H6-additivity-similarity-85mm.svg" == made.value.suggested_filename
    text = made.value.path().read_text("utf-8")
    root = ElementTree.fromstring(text)
    assert "85mm" == root.get("width")
    assert root.findtext(f"{SVG}desc").startswith("L2H6, model demo-gpt2, ")
    assert "fill: rgb(255, 255, 255)" in next(root.iter(f"{SVG}svg")).find(
        f".//{SVG}rect[@style]"
    ).get("style")
    assert "fill: rgb(0, 0, 0)" in text
    assert "fill: rgb(201, 211, 218)" not in text


def size_of(page: Page, figure: str) -> tuple[float, float]:
    plot = page.locator(f".st-key-figure-{figure} .main-svg").first
    expect(plot).to_be_visible()
    settle(page)
    box = plot.bounding_box()
    return box["width"], box["height"]


def test_scenes_and_the_morph(page: Page, still):
    """As high as they were made where there is room; on a phone hardly higher than wide."""
    page.set_viewport_size({"width": 1400, "height": 1000})
    visit(page, f"{still.url}/helix?model=demo-gpt2")
    assert [560, 650] == [size_of(page, figure)[1] for figure in ("helix", "morph")]
    the_morph_plays_and_can_be_moved(page)
    page.set_viewport_size({"width": 390, "height": 1000})
    stand_still(page)
    for name, around in (("helix", 130), ("morph", 220)):
        width, height = size_of(page, name)
        assert 0 <= height - width <= around


def the_morph_plays_and_can_be_moved(page: Page) -> None:
    shown = figure(page, "morph")
    shown.scroll_into_view_if_needed()
    until(page, f"() => {PLAYER}?._fullLayout?.sliders")
    layers = page.evaluate(f"{PLAYER}._fullLayout.sliders[0].steps.length")
    assert 4 == layers
    shown.locator(".updatemenu-button").first.click()
    until(page, f"{PLAYER}._fullLayout.sliders[0].active === {layers - 1}")
    last = page.evaluate(f"String(Array.from({PLAYER}.data[0].x))")
    shown.locator(".slider-rail-touch-rect").click(position={"x": 3, "y": 3}, force=True)
    until(page, f"{PLAYER}._fullLayout.sliders[0].active === 0")
    until(page, f"last => String(Array.from({PLAYER}.data[0].x)) !== last", last)


REST_IS_NEXT = """() => document.querySelector("[data-testid=stMain]").scrollBy(
  0, document.querySelector(".st-key-rest").getBoundingClientRect().top - innerHeight)"""
"""What stands below the curve begins at the lower edge of the window."""


def a_figure_that_waits_follows_the_last_choice(page: Page) -> None:
    """One head, another, and the first again before the browser is idle: the first is drawn."""
    far = figure(page, "layer")
    far.scroll_into_view_if_needed()
    expect(far.locator(".main-svg").first).to_be_visible()
    first = drawn(far)
    for head in ("L1H3", "L2H6"):
        page.evaluate(REST_IS_NEXT)
        side_cell(page, head).click()
        expect(finding_of(page, "layer")).to_contain_text(f"layer {head[1]}")
    far.scroll_into_view_if_needed()
    expect(far).not_to_have_attribute("data-due", "")
    assert "L2H6" in first
    assert first == drawn(far)


def test_without_its_script_a_figure_says_so(page: Page, url):
    """And once the script arrives, the next choice is drawn, without that sentence."""
    page.route("**/plotly.js*", lambda route: route.abort())
    page.goto(url)
    shown = figure(page, "layer")
    shown.scroll_into_view_if_needed()
    expect(shown).to_have_text("This figure needs a file that did not arrive: reload the page.")
    page.unroute("**/plotly.js*")
    side_cell(page, "L1H3").click()
    expect(shown.locator(".main-svg").first).to_be_visible()
    expect(shown).not_to_contain_text("did not arrive")
