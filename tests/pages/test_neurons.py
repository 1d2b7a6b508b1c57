"""The page on contextual neurons in a browser: every control, and what it changes."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.visit import (
    complains,
    console,
    flip,
    no_trouble,
    parameter,
    pick,
    press,
    redraws,
    seek,
    settle,
    shown,
    table,
    title_of,
    traces,
    visit,
    write,
)
from tests.support.visit_tables import click_row, column, titles, wide

pytestmark = pytest.mark.browser

PAGE, PARTS = "/contextual_neurons", "Show the parts of the prediction"
HEADS, RAREST, RANKED = "Contextual heads of layer 0", "Rarest token listed", "Neurons ranked by"
NEURON, WORDS = "Neuron of layer 0", "Which neurons fire for these words?"
NEAR, COMPONENTS = "Tokens near the token", "Components of the vocabulary"
HOSTILE = "<script>document.title='taken'</script> <b>bold</b> \"king\" & 'Lord'"
BARS = """() => document.querySelector('.st-key-figure-tokens .js-plotly-plot')._fullData[0].y
  .reduce((all, count) => all + count)"""
RING = """() => document.querySelector('.st-key-figure-neurons .js-plotly-plot')._fullData
  .find(trace => trace.name === 'chosen').text[0]"""


@pytest.fixture
def show(page: Page, server):
    return wide(page, server, PAGE)


def chosen(page: Page, neuron: int | str) -> None:
    for title in (f"Neuron {neuron}", f"Tokens of neuron {neuron}", f"Neuron {neuron} along a text",
                  f"Sub-latents of neuron {neuron}"):  # fmt: skip
        expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
    settle(page)
    assert {NEURON: f"{neuron}"} == shown(page, NEURON)
    assert f"{neuron}" == parameter(page, "neuron")


def test_what_the_bag_is_made_of(show):
    page = show()
    with redraws(page, "neurons"), redraws(page, "trace"):
        pick(page, "one for all")
    with redraws(page, "neurons"), redraws(page, "trace"):
        pick(page, "their mean")
    for judged in ("R²", "cosine"):
        with redraws(page, "quality"):
            pick(page, judged)
        assert judged == parameter(page, "judged")
    few = page.evaluate(BARS)
    with redraws(page, "tokens"):
        write(page, RAREST, "0")
    assert page.evaluate(BARS) > 2 * few > 20
    for head in ("L0H3", "L0H1"):
        with redraws(page, "bag-kernel"), redraws(page, "neurons"):
            seek(page, HEADS, head)
    filled = page.get_by_text(re.compile("The bag is filled by (L0H3, L0H1|L0H1, L0H3) "))
    expect(filled).to_be_visible()
    assert {"L0H1", "L0H3"} == set(re.findall(r"bagheads=(\w+)", page.url))
    assert ["one for all", "their mean", "0"] == [
        parameter(page, name) for name in ("normscale", "bagkernel", "mincount")
    ]
    no_trouble(page)


def test_a_neuron_is_selected(show):
    page = show()
    seek(page, RANKED, "sign agreement")
    settle(page)
    assert "sign agreement" == parameter(page, "rank")
    signs = [float(each) for each in column(page, "neuron-table", "sign")]
    assert sorted(signs, reverse=True) == signs
    third = column(page, "neuron-table", "neuron")[3]
    with redraws(page, "tokens"), redraws(page, "related"), redraws(page, "latents"):
        click_row(page, "neuron-table", 3)
    chosen(page, third)
    assert f"<b>{third}</b>" == page.evaluate(RING)
    relative = column(page, "related-table", "neuron")[1]
    with redraws(page, "tokens"):
        click_row(page, "related-table", 1)
    chosen(page, relative)
    with redraws(page, "trace"):
        write(page, NEURON, "5")
    chosen(page, 5)
    write(page, WORDS, HOSTILE)
    expect(page.get_by_text("Tokens searched: ")).to_contain_text("<  script  >")
    for key, order in (("words-for", -1), ("words-against", 1)):
        scores = [order * float(each) for each in column(page, key, "score (sd)")]
        assert sorted(scores) == scores
    assert float(column(page, "words-for", "score (sd)")[0]) > 0
    found = column(page, "words-for", "neuron")[0]
    with redraws(page, "tokens"):
        click_row(page, "words-for", 0)
    chosen(page, found)
    assert "PosKernel" in page.title()
    no_trouble(page)


def test_text_of_a_trace(show):
    """A window, a chapter or one's own; every token tells its place and number, as plain text."""
    page = show()
    first = titles(page)
    with redraws(page, "trace"):
        write(page, "Window", "3")
    assert "3" == parameter(page, "window")
    assert first != titles(page)
    with redraws(page, "trace"):
        pick(page, "a text")
    assert 100 < len(titles(page))
    with redraws(page, "trace"):
        seek(page, "Text", "Exodus 12")
    assert "Exodus 12" == parameter(page, "item")
    seek(page, "Text", "my own text")
    expect(page.get_by_test_id("stAlertContentInfo")).to_be_visible()
    expect(page.locator(".st-key-figure-trace")).to_have_count(0)
    write(page, "Your text", HOSTILE)
    region = page.get_by_role("region", name="Text by contribution")
    expect(region).to_have_text(f"<|endoftext|>{HOSTILE}")
    told = titles(page)
    assert "<|endoftext|> at 0: contribution none" == told[0]
    for place, each in enumerate(told[1:], 1):
        assert re.fullmatch(rf".+ at {place}: contribution -?\d.*", each)
    assert {len(told)} == set(traces(page, "trace").values())
    without = traces(page, "trace")
    flip(page, PARTS, True)
    assert {"bag of tokens", "position", "other heads", "current token"} == (
        set(traces(page, "trace")) - set(without)
    )
    flip(page, PARTS, False)
    assert without == traces(page, "trace")
    assert "PosKernel" in page.title()
    no_trouble(page)


def test_components_and_neighbours(show):
    page = show()
    rows = table(page, "card-latents").locator("tbody tr")
    groups = rows.count()
    with redraws(page, "latents"):
        press(page, COMPONENTS, "Home")
    assert "2" == parameter(page, "components")
    expect(rows).to_have_count(2)
    assert groups > 2
    expect(page.get_by_text("Type a token to see")).to_be_visible()
    write(page, NEAR, "<script>")
    complains(page, "Expected text that is one token of 'demo-gpt2'; '<script>' is")
    expect(page.locator(".st-key-card-near")).to_have_count(0)
    write(page, NEAR, " king")
    expect(title_of(page, "near")).to_have_text("Tokens near ␣king")
    cosines = [float(each) for each in column(page, "card-near", "extended")]
    assert sorted(cosines, reverse=True) == cosines
    assert 5 < len(cosines)
    assert max(cosines) <= 1
    no_trouble(page)


def test_a_model_without_neurons(page, server):
    trouble = console(page)
    visit(page, server.link(PAGE, model="demo-attn-2l"))
    expect(page.get_by_test_id("stAlertContentInfo")).to_contain_text("no MLPs")
    expect(page.get_by_test_id("stAlert")).to_have_count(1)
    expect(page.locator(".js-plotly-plot")).to_have_count(0)
    no_trouble(page)
    assert [] == trouble


def test_the_neuron_that_is_driven_most_is_ringed_and_named(show):
    page = show()
    first = column(page, "neuron-table", "neuron")[0]
    expect(page.get_by_role("heading", name=f"Neuron {first}", exact=True)).to_be_visible()
    assert f"<b>{first}</b>" == page.evaluate(RING)
    expect(page.get_by_text("The bag is filled by L0H0, ")).to_be_visible()
    assert first not in column(page, "related-table", "neuron")
    assert 7 > len(column(page, "card-latents", "share")) > 1
    no_trouble(page)


def test_the_ring_is_around_the_neuron_of_the_link(show):
    """Also when everything is stored already."""
    show(neuron=7)
    page = show(neuron=7)
    chosen(page, 7)
    assert "<b>7</b>" == page.evaluate(RING)
