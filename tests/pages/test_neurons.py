"""The page on contextual neurons: lists and texts as a script, rows that select in a browser."""

import re
from html import unescape

import pytest
from playwright.sync_api import Page, expect

from tests.support.bound import figure_on, headings, opened, opened_as_linked
from tests.support.visit import no_trouble, parameter, redraws, settle, shown, visit, write
from tests.support.visit_tables import click_row, column, wide
from tools.recorded import figures_on

PAGE, NEURON = "contextual_neurons", "Neuron of layer 0"
HOSTILE = "<script>document.title='taken'</script> <b>bold</b> \"king\" & 'Lord'"
RING = """() => document.querySelector('.st-key-figure-neurons .js-plotly-plot')._fullData
  .find(trace => trace.name === 'chosen').text[0]"""


@pytest.fixture
def show(computed):
    def go_to(**link):
        app = opened(PAGE, context="128", windows="20", firstwindows="8", **link)
        assert not app.exception
        return app

    return go_to


def frames(app, name):
    return [each.value for each in app.dataframe if name in each.value]


@pytest.mark.slow
def test_neurons_and_their_words(show):
    """Related neurons are others; those that fire for words come first, as do nearer tokens."""
    app = show(rank="sign agreement", words=HOSTILE, nearword=" king", components="2")
    assert not app.error
    (every,) = (each for each in frames(app, "sign") if "score (sd)" not in each)
    (related,) = (each for each in frames(app, "neuron") if "sign" not in each)
    fire, kept = frames(app, "score (sd)")
    assert sorted(every["sign"], reverse=True) == [*every["sign"]]
    (number,) = (each[7:] for each in headings(app) if re.fullmatch(r"Neuron \d+", each))
    assert int(number) not in [*related["neuron"]]
    for table, order in ((fire, -1), (kept, 1)):
        assert sorted(order * table["score (sd)"]) == [*(order * table["score (sd)"])]
    assert fire["score (sd)"].iloc[0] > 0
    assert any("Tokens searched: " in each.value for each in app.caption)
    (near,) = frames(app, "extended")
    assert "Tokens near ␣king" in headings(app)
    assert sorted(near["extended"], reverse=True) == [*near["extended"]]
    assert len(near) > 5
    assert near["extended"].max() <= 1
    assert 2 == len(frames(app, "towards firing")[0])
    app = show(nearword="<script>")
    (told,) = (each.value.replace("\\", "") for each in app.error)
    assert "Expected text that is one token of 'demo-gpt2'; '<script>' is" in told
    assert [] == frames(app, "extended")


@pytest.mark.slow
def test_text_of_a_trace(show):
    """Every token of a reader's text tells its place and number, as plain text."""
    own = {"tracetext": "a text", "item": "my own text"}
    app = show(**own)
    assert "trace" not in figures_on(app)
    assert any("the neuron is traced along it" in each.value for each in app.info)
    app = show(**own, text=HOSTILE, parts="true")
    (region,) = (each.proto.body for each in app.get("html") if "contribution" in each.proto.body)
    assert f"<|endoftext|>{HOSTILE}" in unescape(re.sub("<[^>]*>", "", region))
    told = [unescape(each) for each in re.findall(r'title="([^"]*)"', region)]
    assert "<|endoftext|> at 0: contribution none" == told[0]
    for place, each in enumerate(told[1:], 1):
        assert re.fullmatch(rf".+ at {place}: contribution -?\d.*", each)
    lines = figure_on(app, "trace").data
    assert {len(told)} == {len(each.x) for each in lines}
    assert {"bag of tokens", "position", "other heads", "current token"} < {e.name for e in lines}


def chosen(page: Page, neuron: str) -> None:
    for title in (f"Neuron {neuron}", f"Tokens of neuron {neuron}", f"Neuron {neuron} along a text",
                  f"Sub-latents of neuron {neuron}"):  # fmt: skip
        expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
    settle(page)
    assert {NEURON: neuron} == shown(page, NEURON)
    assert neuron == parameter(page, "neuron")
    assert f"<b>{neuron}</b>" == page.evaluate(RING)


@pytest.mark.browser
def test_rows_select_neurons(page, server):
    """In the list of all, of related ones and of those that fire for words; a link keeps it."""
    page = wide(page, server, f"/{PAGE}")(words=HOSTILE)
    for key in ("neuron-table", "related-table", "words-for"):
        neuron = column(page, key, "neuron")[1]
        with redraws(page, "tokens"):
            click_row(page, key, 1)
        chosen(page, neuron)
    write(page, NEURON, "5")
    chosen(page, "5")
    visit(page, page.url)
    chosen(page, "5")
    assert re.fullmatch(r"Neurons · L\d+H\d+ of \S+ · PosKernel", page.title())
    no_trouble(page)


def test_a_model_without_neurons(shipped_only):
    app = opened_as_linked(PAGE, model="demo-attn-2l")
    (told,) = app.info
    assert "no MLPs" in told.value
    assert [] == figures_on(app)
    assert not app.exception
