"""The helix page in a browser: every control, and what it changes."""

import re

import pytest
from playwright.sync_api import Page, expect

from pages.parts.figures.of_positions import OVERLAYS, OWN_AXES
from poskernel_core.published import ANGLES_GPT2
from tests.builders import llama
from tests.server import serve
from tests.visit import (
    HASH,
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
    visit,
)

pytestmark = pytest.mark.browser

PAGE, CONTEXT, TOKENS = "/helix", 128, 20
CARDS = ("helix", "morph", "variance", "angles_residual", "angles_position", "shape")
LAYER, START = "Stream before layer", "Positions drawn — start"
OWN_NOTICE = "_stcore/"  # Streamlit asks for these below the page's address first, and gets a 404
PLAYER = "document.querySelector('.st-key-figure-morph .js-plotly-plot')"


@pytest.fixture
def show(page: Page, server):
    """Open the page with the parameters given, and return it."""

    def go(**parameters: object) -> Page:
        visit(page, server.link(PAGE, **{"context": CONTEXT, "rtok": TOKENS, **parameters}))
        return page

    return go


@pytest.fixture(scope="module")
def rotary(tmp_path_factory):
    """A server whose host offers a model with rotary positions, and the name of that model."""
    root = tmp_path_factory.mktemp("rotary")
    model = str(llama(root / "llama"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.server.environment", _with_model(model))
        with serve(root / "cache", root / "server.log") as started:
            yield started, model


def _with_model(model: str):
    from tests.server import environment

    return lambda cache, *_: environment(cache) | {"POSKERNEL_MODELS": model}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_figures_are_drawn(page, show, scheme):
    """Six figures and the published row; no error on the console."""
    trouble = []
    page.on("console", lambda said: trouble.append(said) if said.type == "error" else None)
    page.on("pageerror", lambda error: trouble.append(error))
    page.emulate_media(color_scheme=scheme)
    show()
    for figure in CARDS:
        expect(page.locator(f".st-key-figure-{figure} .main-svg").first).to_be_visible()
    background = page.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor")
    dark = sum(map(int, re.findall(r"\d+", background)[:3])) < 3 * 128
    assert dark == (scheme == "dark")
    published = table(page, "card-angles").locator("tr").filter(has_text="published for GPT-2")
    expect(published).to_contain_text(", ".join(f"{angle:.0f}°" for angle in ANGLES_GPT2))
    no_trouble(page)
    assert [] == [str(each) for each in trouble if OWN_NOTICE not in each.location["url"]]


def test_layer_positions_averages_and_overlay(show):
    """Title, number of points, diamonds and W_pos follow."""
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
    for handle, key in ((START, "ArrowRight"), ("Positions drawn — end", "ArrowLeft")):
        with redraws(page, "helix"):
            slider(page, handle).press(key)
    assert {CONTEXT - 2} == set(traces(page, "helix").values())
    assert parameter(page, "span")

    with redraws(page, "helix"):
        seek(page, "Averages in groups of", "10")
    whole = (CONTEXT - 1) // 10 - 1  # the first and the last group are cut by the range
    assert whole == traces(page, "helix")["group averages"]
    assert "10" == parameter(page, "avg")

    for overlay in [*OVERLAYS][1:]:
        with redraws(page, "helix"):
            seek(page, "Drawn beside it", overlay)
        names = traces(page, "helix")
        assert {"W_pos", "before layer 3"} <= names.keys()
        assert ("group averages" in names) == (overlay in OWN_AXES)
        assert overlay == parameter(page, "beside")
    no_trouble(page)


def test_every_setting(show):
    """Tokens repeated, first positions left out, k, and what is far from 0."""
    page = show()
    page.get_by_role("button", name="Settings").click()
    with redraws(page, "shape"):
        press(page, "Tokens that are repeated, one a prompt", "ArrowRight")
    assert f"{TOKENS + 1}" == parameter(page, "rtok")
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
    no_trouble(page)


def test_texts_of_the_corpus(show):
    """Real texts in place of a repeated token: the start token's position is left out; and back."""
    page = show()
    with redraws(page, "helix"), redraws(page, "shape"):
        pick(page, "texts of the corpus")
    expect(slider(page, START)).to_have_attribute("aria-valuetext", "1")
    assert {CONTEXT - 1} == set(traces(page, "helix").values())
    assert "texts of the corpus" == parameter(page, "prompts")
    with redraws(page, "helix"):
        pick(page, "one token repeated")
    assert {CONTEXT} == set(traces(page, "helix").values())


def test_the_morph_plays_and_can_be_moved(show):
    """Play ends at the last layer; the slider below the figure goes back."""
    page = show()
    page.wait_for_function(HASH, arg="morph")
    layers = page.evaluate(f"{PLAYER}._fullLayout.sliders[0].steps.length")
    assert 4 == layers
    figure = page.locator(".st-key-figure-morph")
    figure.locator(".updatemenu-button").first.click()
    page.wait_for_function(f"{PLAYER}._fullLayout.sliders[0].active === {layers - 1}")
    last = page.evaluate(f"Array.from({PLAYER}.data[0].x)")
    figure.locator(".slider-rail-touch-rect").click(position={"x": 3, "y": 3}, force=True)
    page.wait_for_function(f"{PLAYER}._fullLayout.sliders[0].active === 0")
    page.wait_for_function(f"last => String(Array.from({PLAYER}.data[0].x)) !== last",
                           arg=",".join(map(str, last)))  # fmt: skip
    no_trouble(page)


def test_a_model_with_rotary_positions(page, rotary):
    """A sentence on why there is no helix of the post's kind; the mean stream is drawn."""
    started, model = rotary
    visit(page, started.link(PAGE, model=model))
    expect(page.get_by_text("This model has rotary positions")).to_be_visible()
    expect(page.get_by_role("radio", name="one token repeated")).to_have_count(0)
    for figure in CARDS:
        expect(page.locator(f".st-key-figure-{figure} .main-svg").first).to_be_visible()
    settle(page)
    no_trouble(page)
