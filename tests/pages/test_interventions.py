"""The page of interventions in a browser: presets, every kind of change, and bad input."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from poskernel_core.analyses.interventions.presets import presets_for
from tests.support.visit import (
    cell,
    complains,
    no_trouble,
    parameter,
    pick,
    press,
    redraws,
    seek,
    settle,
    side_cell,
    slider,
    title_of,
    values,
    write,
)
from tests.support.visit_tables import opens

pytestmark = pytest.mark.browser

PAGE, CONTEXT = "/interventions", 128
PRESETS = presets_for("demo-gpt2")
FIRST = PRESETS[0]
OTHER = "L0H1" if FIRST.cell != "L0H1" else "L0H2"
WORDS = {
    "average": "average positions",
    "blind": "blind to predecessor",
    "move": "move attention",
    "ablate": "ablate heads",
    "remove": "remove embeddings",
}
HEAD, MOVES, LAYERS = "Head that is changed", "Rows and their new keys", "In layers"
BEFORE = "before the softmax"


@pytest.fixture
def show(page: Page, server):
    return opens(page, server, PAGE, context=CONTEXT, head=FIRST.cell)


def numbers(page: Page) -> list[str]:
    expect(page.get_by_test_id("stMetricValue")).to_have_count(5)
    return page.get_by_test_id("stMetricValue").all_inner_texts()


def prompt(page: Page) -> str:
    return page.get_by_role("textbox", name="Prompt", exact=True).input_value()


def add(page: Page, label: str, option: str) -> None:
    """Add to a choice of several by typing; its list closes as the field is left."""
    box = page.get_by_role("combobox", name=label, exact=True)
    box.fill(option)
    box.press("Enter")
    box.press("Tab")
    settle(page)


def test_presets_moves_and_bad_input(show):
    page = show(head=OTHER)
    page.get_by_role("button", name=f"Look at {FIRST.cell}").click()
    expect(title_of(page, "patterns-whole")).to_contain_text(f"{FIRST.cell} on the prompt")
    settle(page)
    expect(page.get_by_role("button", name="Look at ")).to_have_count(0)
    for preset in (*PRESETS[1:], FIRST):
        side_cell(page, OTHER).click()
        settle(page)
        with redraws(page, "losses"):
            seek(page, "Preset", preset.name)
        expect(page.get_by_role("radio", name=WORDS[preset.params["change"]])).to_be_checked()
        assert (preset.prompt, preset.cell) == (prompt(page), values(page)["Head"])
        expect(page.get_by_text(preset.about)).to_be_visible()
        expect(title_of(page, "patterns-whole")).to_contain_text(f"{preset.cell} on the prompt")
        assert 5 == len(numbers(page))
        no_trouble(page)
    write(page, "Prompt", f"{FIRST.prompt} king")
    expect(page.get_by_text("Changed since: choose another preset")).to_be_visible()
    for preset in PRESETS[1::-1]:
        with redraws(page, "losses"):
            seek(page, "Preset", preset.name)
    moving_ablating_and_removing(page)
    bad_input_gives_one_sentence_and_is_mended(page)


def test_averaging_and_prompts(show):
    page = show(change=WORDS["average"])
    the_grid_of_heads_and_the_averaging(page)
    averaging_and_blinding(page)
    prompts_of_every_length(page)


def averaging_and_blinding(page: Page) -> None:
    with redraws(page, "losses"):
        press(page, "Positions per group", "ArrowLeft")
    with redraws(page, "losses"):
        seek(page, "Averaged", "in the stream before layer 2")
    assert parameter(page, "group")
    assert "in the stream before layer 2" == parameter(page, "place")
    with redraws(page, "losses"):
        write(page, "Spare the first positions", "4")
    assert "4" == parameter(page, "keep")
    with redraws(page, "losses"):
        pick(page, WORDS["blind"])
    with redraws(page, "losses"):
        press(page, "Every k-th position, k =", "Home")
    assert "1" == parameter(page, "every")
    with redraws(page, "losses"):
        seek(page, "Changed", BEFORE)
    with redraws(page, "losses"):
        write(page, LAYERS, "0,3")
    assert ("0,3", BEFORE) == (parameter(page, "layers"), parameter(page, "stage"))
    no_trouble(page)


def moving_ablating_and_removing(page: Page) -> None:
    with redraws(page, "losses"):
        add(page, MOVES, "4>1")
    with redraws(page, "losses"):
        write(page, "Multiply by", "2.5")
    with redraws(page, "losses"):
        seek(page, "What is multiplied", "the whole layer's attention output")
    with redraws(page, "losses"):
        seek(page, "Changed", BEFORE)
    with redraws(page, "losses"):
        write(page, "Nats above the largest score", "1")
    with redraws(page, "losses"):
        seek(page, HEAD, OTHER)
    moves = FIRST.params["moves"].split(", ")
    assert [*moves, "4>1"] == parse_qs(urlsplit(page.url).query)["moves"]
    given = {"scale": "2.5", "strength": "1", "edited": OTHER}
    assert given == {name: parameter(page, name) for name in given}
    with redraws(page, "losses"):
        pick(page, WORDS["ablate"])
    with redraws(page, "losses"):
        add(page, "Ablated heads", OTHER)
    with redraws(page, "losses"):
        pick(page, WORDS["remove"])
    with redraws(page, "losses"):
        pick(page, "token embeddings")
    assert "token embeddings" == parameter(page, "removed")
    no_trouble(page)


def bad_input_gives_one_sentence_and_is_mended(page: Page) -> None:
    pick(page, WORDS["move"])
    box = page.get_by_role("combobox", name=MOVES, exact=True)
    for bad, sentence in (
        ("999>1", "Position 999 is outside the prompt"),
        ("xylophone>1", "has no word 'xylophone'"),
        ("1>3", "comes after it"),
        ("from 3 to 1", "A move is written row>key"),
    ):
        add(page, MOVES, bad)
        complains(page, sentence)
        expect(page.locator(".js-plotly-plot")).to_have_count(0)
        box.press("Backspace")
        box.press("Tab")
        settle(page)
        expect(page.locator(".st-key-figure-losses .main-svg").first).to_be_visible()
        no_trouble(page)
    pick(page, WORDS["blind"])
    write(page, LAYERS, "7-9")
    complains(page, "Expected layers from 0 to 3")
    write(page, LAYERS, "0")
    assert 5 == len(numbers(page))
    no_trouble(page)


def prompts_of_every_length(page: Page) -> None:
    """Empty: asked for one; too long: one sentence; long: a window to move; mended each time."""
    pick(page, WORDS["remove"])
    long = "The king saw the city. " * 12
    write(page, "Prompt", "  ")
    expect(page.get_by_text("Type a prompt of a few words or more")).to_be_visible()
    write(page, "Prompt", long * 8)
    complains(page, f"{CONTEXT}")
    expect(page.get_by_test_id("stMetric")).to_have_count(0)
    write(page, "Prompt", FIRST.prompt)
    before = numbers(page)
    page.get_by_role("textbox", name="Prompt", exact=True).fill(long)
    page.keyboard.press("Control+Enter")
    expect(page.get_by_test_id("stMetricValue").first).not_to_have_text(before[0])
    settle(page)
    assert long.strip() == parameter(page, "prompt").strip()
    with redraws(page, "window-clean"):
        slider(page, "Window begins at position").press("ArrowRight")
    with redraws(page, "window-changed"):
        seek(page, "Window (positions)", "16")
    assert ("1", "16") == (parameter(page, "zoom"), parameter(page, "zoomsize"))
    no_trouble(page)


def the_grid_of_heads_and_the_averaging(page: Page) -> None:
    expect(
        page.get_by_role("gridcell", name=re.compile(r"^L\dH\d: .*clean.*changed"))
    ).to_have_count(32)
    with redraws(page, "whole-clean"):
        cell(page, OTHER).click()
    expect(title_of(page, "patterns-whole")).to_contain_text(f"{OTHER} on the prompt")
    assert (OTHER, OTHER) == (parameter(page, "head"), values(page)["Head"])
    expect(cell(page, OTHER)).to_have_attribute("aria-selected", "true")
    expect(title_of(page, "averaging")).to_have_count(0)
    page.get_by_role("switch", name="Measure the loss").check(force=True)
    expect(page.locator(".st-key-figure-averaging .main-svg").first).to_be_visible()
    settle(page)
    assert "true" == parameter(page, "avgtable")
    with redraws(page, "averaging"):
        seek(page, "Averaged", "in the stream before layer 1")
    no_trouble(page)
