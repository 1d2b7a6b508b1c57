"""The helix page in a browser: every control, and what it changes."""

import re

import pytest
from playwright.sync_api import Page, expect

from poskernel_core.analyses.helix.figures import OVERLAYS, OWN_AXES
from tests.support.visit import (
    hash_of,
    no_trouble,
    parameter,
    pick,
    press,
    redraws,
    seek,
    settle,
    slider,
    table,
    title_of,
    traces,
    until,
    visit,
)
from tests.support.visit_tables import opens

pytestmark = pytest.mark.browser

PAGE, CONTEXT, TOKENS = "/helix", 128, 20
LAYER, START = "Stream before layer", "Positions drawn — start"
PLAYER = "document.querySelector('.st-key-figure-morph .js-plotly-plot')"


@pytest.fixture
def show(page: Page, server):
    return opens(page, server, PAGE, context=CONTEXT, rtok=TOKENS)


def test_every_control(show):
    page = show(hl=1)
    expect(title_of(page, "helix")).to_have_text("Positions before layer 1")
    with redraws(page, "helix"):
        slider(page, LAYER).press("ArrowRight")
    expect(title_of(page, "helix")).to_have_text("Positions before layer 2")
    assert parameter(page, "hl") is None
    with redraws(page, "helix"):
        slider(page, LAYER).press("ArrowRight")
    expect(title_of(page, "helix")).to_have_text("Positions before layer 3")
    assert "3" == parameter(page, "hl")

    assert {CONTEXT} == set(traces(page, "helix").values())
    texts_of_the_corpus(page)
    every_setting(page)
    for handle, key in ((START, "ArrowRight"), ("Positions drawn — end", "ArrowLeft")):
        with redraws(page, "helix"):
            slider(page, handle).press(key)
    assert {CONTEXT - 3} == set(traces(page, "helix").values())
    assert parameter(page, "span")

    with redraws(page, "helix"):
        seek(page, "Averages in groups of", "10")
    whole = (CONTEXT - 1) // 10 - 1  # the first and the last group are cut by the range
    assert whole == traces(page, "helix")["group averages"]
    assert "10" == parameter(page, "avg")

    for overlay in [*OVERLAYS][1:]:
        with redraws(page, "helix"):
            seek(page, "Drawn with it", overlay)
        names = traces(page, "helix")
        assert {"W_pos", "before layer 3"} <= names.keys()
        assert ("group averages" in names) == (overlay in OWN_AXES)
        assert overlay == parameter(page, "overlay")
    the_morph_plays_and_can_be_moved(page)
    no_trouble(page)


def every_setting(page: Page) -> None:
    page.get_by_role("button", name="Settings").click()
    with redraws(page, "shape"):
        press(page, "Repeated tokens, one per prompt", "ArrowRight")
    assert f"{TOKENS + 10}" == parameter(page, "rtok")
    with redraws(page, "helix"):
        press(page, "Leave out the first positions", "ArrowRight")
    assert "1" == parameter(page, "out")
    expect(slider(page, START)).to_have_attribute("aria-valuetext", "1")
    with redraws(page, "angles_residual"):
        press(page, "k of the subspaces compared", "ArrowRight")
    expect(title_of(page, "angles")).to_contain_text("top-4 subspaces")
    with redraws(page, "shape"):
        press(page, "Far from 0: beyond this many times the rms", "ArrowRight")
    assert any("beyond 1.5 × rms" in name for name in traces(page, "shape"))
    page.keyboard.press("Escape")
    angles = table(page, "card-angles").locator("tbody tr").first.locator("td").last
    expect(angles).to_have_text(re.compile(r"^[\d.]+°(, [\d.]+°){3}$"))
    assert ("4", "1.5") == (parameter(page, "k"), parameter(page, "far"))


def texts_of_the_corpus(page: Page) -> None:
    """Real texts in place of a repeated token: the start token's position is left out; and back."""
    with redraws(page, "helix"), redraws(page, "shape"):
        pick(page, "windows of the corpus")
    expect(slider(page, START)).to_have_attribute("aria-valuetext", "1")
    assert {CONTEXT - 1} == set(traces(page, "helix").values())
    assert "windows of the corpus" == parameter(page, "prompts")
    with redraws(page, "helix"):
        pick(page, "one token repeated")


def the_morph_plays_and_can_be_moved(page: Page) -> None:
    hash_of(page, "morph")
    layers = page.evaluate(f"{PLAYER}._fullLayout.sliders[0].steps.length")
    assert 4 == layers
    figure = page.locator(".st-key-figure-morph")
    figure.locator(".updatemenu-button").first.click()
    until(page, f"{PLAYER}._fullLayout.sliders[0].active === {layers - 1}")
    last = page.evaluate(f"Array.from({PLAYER}.data[0].x)")
    figure.locator(".slider-rail-touch-rect").click(position={"x": 3, "y": 3}, force=True)
    until(page, f"{PLAYER}._fullLayout.sliders[0].active === 0")
    until(
        page,
        f"last => String(Array.from({PLAYER}.data[0].x)) !== last",
        ",".join(map(str, last)),
    )


def test_a_model_with_rotary_positions(page, server, rotary):
    """A sentence says why there is no helix of the post's kind; the mean stream is drawn."""
    visit(page, server.link(PAGE, model=rotary))
    expect(page.get_by_text("This model has rotary positions")).to_be_visible()
    expect(page.get_by_role("radio", name="one token repeated")).to_have_count(0)
    for figure in ("helix", "morph", "variance", "angles_residual", "angles_position", "shape"):
        expect(page.locator(f".st-key-figure-{figure} .main-svg").first).to_be_visible()
    settle(page)
    no_trouble(page)
