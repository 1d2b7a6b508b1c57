"""The page on contextual neurons in a browser: every control, and what it changes."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.bound import opened_as_linked
from tests.support.visit import (
    complains,
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
from tools.recorded import figures_on

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


def what_the_bag_is_made_of(page: Page) -> None:
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


@pytest.mark.browser
def test_neurons(show):
    page = show()
    first = column(page, "neuron-table", "neuron")[0]
    expect(page.get_by_role("heading", name=f"Neuron {first}", exact=True)).to_be_visible()
    assert f"<b>{first}</b>" == page.evaluate(RING)
    expect(page.get_by_text("The bag is filled by L0H0, ")).to_be_visible()
    assert first not in column(page, "related-table", "neuron")
    assert 7 > len(column(page, "card-latents", "share")) > 1
    components_and_neighbours(page)
    a_neuron_is_selected(page)
    chosen_again = parameter(page, "neuron")
    visit(page, page.url)  # everything is stored already
    assert f"<b>{chosen_again}</b>" == page.evaluate(RING)
    what_the_bag_is_made_of(page)
    assert "PosKernel" in page.title()
    no_trouble(page)


def a_neuron_is_selected(page: Page) -> None:
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


@pytest.mark.browser
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


def components_and_neighbours(page: Page) -> None:
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


def test_a_model_without_neurons(shipped_only):
    app = opened_as_linked("contextual_neurons", model="demo-attn-2l")
    (told,) = app.info
    assert "no MLPs" in told.value
    assert [] == figures_on(app)
    assert not app.exception
