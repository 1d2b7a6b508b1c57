"""Pictures for a paper: of all that pages draw, and from the menu, the command line and Python."""

import base64
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import plotly.graph_objects as go
import pytest
from PIL import Image
from playwright.sync_api import Page
from plotly.offline import get_plotlyjs

import poskernel_core as pk
from pages import NAMES
from pages.shared.cards import card
from poskernel_core.common.errors import BadRequest
from poskernel_core.export import printing
from poskernel_core.export.printing import SCRIPT, WIDTHS, font_file, picture
from poskernel_core.plotting.head_scatter import Column, head_scatter
from poskernel_core.plotting.multiples import small_multiples
from tests.support.bound import opened, opened_as_linked
from tests.support.browser import find_browser
from tests.support.made_results import answer

UNREADABLE = Path(__file__).with_name("printed.js").read_text("utf-8")
SVG = "{http://www.w3.org/2000/svg}"
FONT = f"data:font/woff2;base64,{base64.b64encode(font_file().read_bytes()).decode()}"


@pytest.fixture(params=range(4))
def sheets(request, shipped, monkeypatch) -> dict[str, Any]:
    """What a quarter of the pages offers as pictures: of the first model, and of demos."""
    found = {}

    def keep(name: str, figure: Any, shown: Any, *_rest: object) -> None:
        model = shown.result.provenance["model"]
        for mm in WIDTHS:
            for place, sheet in enumerate(card.sheets_of(figure, shown, mm)):
                found[f"{model} {name} {place} {mm}"] = sheet

    monkeypatch.setattr(card, "_head", keep)
    monkeypatch.setattr(card, "_opened", lambda name: None)  # as if each menu were open
    for page in NAMES[request.param :: 4]:
        for app in (opened(page), opened_as_linked(page)):
            assert [] == [each.value for each in app.exception]
    return found


@pytest.fixture
def printer(page: Page) -> Page:
    page.set_content("<body></body>")
    for script in (get_plotlyjs(), SCRIPT):
        page.add_script_tag(content=script)
    page.evaluate("loadFont", FONT)
    return page


@pytest.mark.slow
@pytest.mark.browser
def test_all_text_of_every_picture_is_inside_and_in_7_to_9_points(sheets, printer):
    """Nothing lies over the legend, a colour bar or other text, and all is in the file's font."""
    assert len(sheets) > 50
    wrong = {name: told for name, sheet in sheets.items()
             if (told := printer.evaluate(UNREADABLE, sheet))}  # fmt: skip
    assert {} == wrong


def test_what_a_paper_needs_and_what_a_page_alone_shows():
    """Points shrink with the width, a head is named once, and no selection is marked."""
    heads = answer("kernel")
    one = heads.select(layer=1, head=2)
    points = Column("x", "", np.arange(6.0).reshape(2, 3))
    scatter = head_scatter(points, points, points, selected=(0, 1))
    for mm, size in ((85, 10 * 85 / 175), (175, 10)):
        (drawn,) = printing.printed(scatter, heads, mm, "Heads")["data"]
        assert size == pytest.approx(drawn["marker"]["size"])
    many = small_multiples(np.ones((3, 5)) / 5, ["L1H0", "L1H1", "L1H2"], 2)
    made = printing.printed(many, one, 85, "Kernel")
    assert len(many.data) - 1 == len(made["data"])
    assert "◀" in str(many.to_dict())
    assert "◀" not in str(made["data"])
    assert ["L1H2: Kernel"] == made["title"]
    assert ["Kernel of L1H2"] == printing.printed(many, one, 85, "Kernel of L1H2")["title"]
    assert ["Kernels"] == printing.printed(many, heads, 85, "Kernels")["title"]


@pytest.mark.browser
def test_what_cannot_be_read_is_noticed(printer):
    """By the check above: else it would find nothing in any picture."""
    around = printing.printed(go.Figure(), answer("kernel", head="L1H2"), 85, "Title")
    text = '<text x="{}" y="{}" font-size="{}">words</text>'
    bar = '<g class="cbfills"><rect x="4" y="14" width="99" height="8"/></g>'
    legend = f'<g class="legend">{text.format(9, 40, 10)}</g>'
    for drawn, told in (
        (text.format(300, 20, 10), "outside: words"),
        (text.format(9, 20, 9), "9 pixels: words"),
        (legend + text.format(12, 38, 10), "over the legend: words"),
        (text.format(9, 20, 10) + text.format(12, 22, 10), "over each other: words / words"),
        (bar + text.format(9, 20, 10), "over a colour bar: words"),
        (legend + bar + text.format(9, 12, 12), None),
    ):
        svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="322" height="50">{drawn}</svg>'
        printer.evaluate("svg => { drawing = async () => ({ svg, cut: 0, height: 50 }); }", svg)
        found = printer.evaluate(UNREADABLE, around)
        assert (told in found) if told else not found


def test_what_is_printed(monkeypatch):
    """Only what is drawn has an entry in the legend; grey text is black; long names are broken."""
    figure = go.Figure([
        go.Scatter(y=[1, 2], name="a name " * 20),
        go.Scatter(y=[1, 2], name="waits", visible="legendonly"),
    ])  # fmt: skip
    figure.update_layout(title="<b>Title</b> &amp; more")
    figure.add_annotation(text="x", font={"size": 40, "color": "#777D84"})
    made = printing.printed(figure, answer("kernel", head="L1H2"), 85)
    (trace,) = made["data"]
    assert 2 <= trace["name"].count("<br>")
    assert ["L1H2: Title & more"] == made["title"]
    assert {"size": 12, "color": "#000000"} == made["layout"]["annotations"][0]["font"]
    assert {"L1H2", "n = 10"} < {each for line in made["caption"] for each in line.split(", ")}
    for wrong, told in (({"width": 100}, "85 or 175 mm"), ({"width": 85}, "found neither")):
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("BROWSER_PATH", raising=False)
        with pytest.raises(BadRequest, match=told):
            picture(figure, answer("kernel", head="L1H2"), "svg", **wrong)
    with pytest.raises(BadRequest, match="table"):
        picture(go.Figure(go.Table()), answer("kernel", head="L1H2"), "svg")


@pytest.mark.parametrize("script", ["#!/bin/sh\nexec sleep 600\n", "#!/bin/sh\nexit 3\n", ""])
def test_a_browser_that_draws_nothing(tmp_path, monkeypatch, script):
    """It is not waited for without end, and the sentence names it; the empty one cannot be run."""
    browser = tmp_path / "browser"
    browser.write_text(script)
    browser.chmod(0o755 if script else 0o644)
    monkeypatch.setenv("BROWSER_PATH", str(browser))
    monkeypatch.setattr(printing, "SECONDS", 1)
    with pytest.raises(BadRequest, match=r"Expected a picture from .*browser' within 1 seconds"):
        picture(go.Figure(go.Scatter(y=[1, 2])), answer("kernel", head="L1H2"), "svg")


@pytest.mark.browser
def test_a_picture_from_python(shipped_engine, tmp_path, monkeypatch):
    browser = find_browser()
    if browser is None:
        pytest.skip("neither Chromium nor Google Chrome is installed")
    monkeypatch.setenv("BROWSER_PATH", browser)
    view = pk.view("kernel", "demo-gpt2", head="L2H6", windows=500, engine=shipped_engine)
    view.save(tmp_path / "a.svg", width=175)
    view.save(tmp_path / "a.png")
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert "175mm" == root.get("width")
    words = [each.text or "" for each in root.iter(f"{SVG}text")]
    assert any("L2H6, n = 400" in each for each in words)
    assert "kernel K (mean)" in {each.text for each in root.iter(f"{SVG}text")}
    assert "font/woff2;base64," in root.findtext(f"{SVG}style")
    with Image.open(tmp_path / "a.png") as image:
        seen = image.width, image.info["dpi"][0]
    assert (85 / 25.4 * 600, 600) == pytest.approx(seen, abs=1.5)
    with pytest.raises(BadRequest, match=r"\.svg or \.png"):
        view.save(tmp_path / "a.pdf")
