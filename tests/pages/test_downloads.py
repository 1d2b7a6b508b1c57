"""What the pages offer for download holds the numbers of the command line and of Python."""

import csv
import io
import json
import re
from base64 import b64decode
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Download, Page, expect

import poskernel_core as pk
from poskernel_core import __version__
from poskernel_core.common.heads import parse_cell
from poskernel_core.common.result import plain
from poskernel_core.export.files import to_csv, to_json, to_npz
from tests.support.near_worker import command_line_here
from tests.support.visit import cells, tool, visit

pytestmark = pytest.mark.browser

CELL = {"head": "L2H1", "query": 255}
SKIP = {"skip": 7}
SVG = "{http://www.w3.org/2000/svg}"


def fetch(page: Page, card: str, kind: str) -> Download:
    with tool(page, card, "Download") as body, page.expect_download() as waiting:
        body.get_by_role("button", name=kind).click()
    return waiting.value


def download(page: Page, card: str, kind: str) -> bytes:
    """The file behind one button of a figure's card."""
    return fetch(page, card, kind).path().read_bytes()


def contents(kind: str, file: bytes) -> Any:
    """What a file holds; nothing in it is pickled."""
    if kind == "JSON":
        return json.loads(file)
    if kind == "CSV":
        lines = file.decode().splitlines()
        told = {line for line in lines if line.startswith("#")}
        return told, {*zip(*csv.reader(line for line in lines if line not in told), strict=True)}
    with np.load(io.BytesIO(file), allow_pickle=False) as arrays:
        return {
            name: json.loads(str(array)) if array.dtype.kind == "U" and not array.ndim
            else (array.dtype, array.shape, array.tobytes())
            for name, array in arrays.items()
        }  # fmt: skip


def as_hex(colour: str) -> str:
    """`rgb(1, 2, 3)` as `#010203`."""
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", colour))


@pytest.fixture(scope="module")
def shown(visitor, server):
    """The landing page at one head, position and skip, which no test here changes."""
    page = visitor.new_page()
    visit(page, server.link(**CELL, **SKIP))
    yield page
    page.close()


@pytest.fixture(scope="module")
def show(server):
    engine = pk.Engine(pk.Store(server.cache))

    def ask(analysis: str, **more: object) -> pk.Result:
        return pk.show(analysis, "demo-gpt2", windows=50, params=SKIP, engine=engine, **more)

    yield ask
    engine.close()
    engine.store.close()


@pytest.mark.parametrize(("card", "chosen"), [("etc", {"query": 255}), ("kernel", CELL)])
def test_page_command_line_and_python_agree(shown, show, server, card, chosen):
    """In every bit, whatever the order; what the files hold: `test_exports.py`."""
    result = show(card, **chosen)
    for kind, written in (("JSON", to_json), ("CSV", to_csv), ("NPZ", to_npz)):
        file = written(result)
        ours = file if isinstance(file, bytes) else file.encode()
        assert contents(kind, ours) == contents(kind, download(shown, card, kind)), kind
    options = [part for name, value in chosen.items() for part in (f"--{name}", str(value))]
    options += ["--windows", "50", "--skip", "7", "--json"]
    line = json.loads(command_line_here(server.cache, "show", card, "demo-gpt2", *options))
    assert json.loads(to_json(result)) == line
    one = result.select(**{"layer": 2, "head": 1} if card == "etc" else {})
    np.testing.assert_array_equal(show(card, **CELL).values[card], one.values[card])


def test_the_grid_as_a_picture(shown):
    """SVG, PNG and HTML are named by what they show and have the colours of the page's cells."""
    named = "demo-gpt2-n255-etc"
    expect(cells(shown)).to_have_count(32)
    on_page = cells(shown).evaluate_all(
        "cells => cells.map(c => [c.dataset.name, getComputedStyle(c.firstChild).backgroundColor])"
    )
    file = fetch(shown, "etc", "SVG 175 mm")
    assert f"{named}-175mm.svg" == file.suggested_filename
    root = ElementTree.fromstring(file.path().read_text("utf-8"))
    (heat,) = root.iter(f"{SVG}image")
    link = next(text for name, text in heat.attrib.items() if name.endswith("href"))
    image = Image.open(io.BytesIO(b64decode(link.partition(",")[2]))).convert("RGB")
    wide, high = (size / count for size, count in zip(image.size, (8, 4), strict=True))
    drawn = {}
    for name, _ in on_page:
        layer, head = parse_cell(name, 4, 8)
        middle = image.getpixel((int((head + 0.5) * wide), int((layer + 0.5) * high)))
        drawn[name] = as_hex(str(middle))
    assert drawn == {name: as_hex(colour) for name, colour in on_page}
    thin = [each for each in root.iter(f"{SVG}path") if "width: 0.8px" in each.get("style", "")]
    lines = [each.get("d") for each in thin if each.get("class") == "js-line"]
    assert 32 == sum(line.count("M") for line in lines)  # the kernels in the cells
    assert download(shown, "etc", "PNG 85 mm").startswith(b"\x89PNG")
    page = download(shown, "etc", "HTML").decode()
    assert "<title>demo-gpt2, n = 255: Effective token count at n = 255</title>" in page
    assert "plotly" in page


def test_html_stands_alone(shown, show, context, tmp_path):
    (tmp_path / "figure.html").write_bytes(download(shown, "kernel", "HTML"))
    page, asked = context.new_page(), []
    page.on("request", lambda request: asked.append(request.url.split(":")[0]))
    page.goto((tmp_path / "figure.html").as_uri())
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    traces = page.evaluate(
        "document.querySelector('.js-plotly-plot')._fullData"
        ".map(trace => [trace.name, Array.from(trace.x), Array.from(trace.y)])"
    )
    points = {}  # the nearest offsets have marks of their own
    for name, x, y in traces:
        points |= dict(zip(x, y, strict=True)) if name == "kernel K (mean)" else {}
    expected = show("kernel", **CELL).values["kernel"][7:256][::-1]
    assert plain(expected) == [points[x] for x in sorted(points)]
    assert {"file", "data", "blob"} >= set(asked)


def test_link_and_citation(shown):
    with tool(shown, "kernel", "Link") as body:
        for part in ("head=L2H1", "skip=7", "query=255", "#kernel"):
            expect(body).to_contain_text(part)
    with tool(shown, "kernel", "Continue in TransformerLens") as body:
        for part in ("pk.to_bridge('demo-gpt2')", "layer, head = 2, 1", "n = 255", "[7 : n + 1]"):
            expect(body).to_contain_text(part)
    with tool(shown, "kernel", "Citation") as body:
        for part in ("@software{poskernel-", "demo-gpt2", "L2H1", "n255", __version__):
            expect(body).to_contain_text(part)
