"""What the pages offer for download holds the numbers of the command line and of Python."""

import csv
import io
import json

import numpy as np
import pytest
from playwright.sync_api import Page

import poskernel_core as pk
from poskernel_core.analyses.base import plain
from tests.server import command_line
from tests.visit import visit

pytestmark = pytest.mark.browser

CELL = {"cell": "L2H1", "query": 255}
SKIP = {"skip": 7}


def download(page: Page, card: str, kind: str) -> bytes:
    """The file behind one button of a figure's card."""
    page.locator(f".st-key-card-{card}").get_by_role("button", name="Download", exact=True).click()
    with page.expect_download() as waiting:
        page.get_by_role("dialog").get_by_role("button", name=kind).click()
    return waiting.value.path().read_bytes()


@pytest.fixture
def shown(page: Page, server):
    """The landing page at one head, position and skip."""
    visit(page, server.link(**CELL, **SKIP))
    return page


@pytest.fixture
def show(server):
    """`pk.show` on the server's own store, for its run."""
    engine = pk.Engine(pk.Store(server.cache))

    def ask(analysis: str, **more: object) -> pk.Result:
        return pk.show(analysis, "demo-gpt2", windows=50, params=SKIP, engine=engine, **more)

    yield ask
    engine.close()
    engine.store.close()


@pytest.mark.parametrize(("card", "chosen"), [("etc", {"query": 255}), ("kernel", CELL)])
def test_page_command_line_and_python_agree(shown, show, server, card, chosen):
    """The JSON of the page, of `show --json` and of `pk.show` are one and the same."""
    page = json.loads(download(shown, card, "JSON"))
    options = [part for name, value in chosen.items() for part in (f"--{name}", str(value))]
    options += ["--texts", "50", "--skip", "7", "--json"]
    line = json.loads(command_line(server.cache, "show", card, "demo-gpt2", *options))
    python = json.loads(json.dumps(show(card, **chosen).as_json()))
    assert page == line == python


def test_etc_of_one_head_is_that_of_the_whole_map(shown, show):
    """The cell of the downloaded map holds the number of `pk.show` for that head alone."""
    page = json.loads(download(shown, "etc", "JSON"))
    assert page["values"]["etc"][2][1] == float(show("etc", **CELL).values["etc"])


def test_csv_is_a_row_per_head(shown, show):
    """Layer and head in the first columns, values under their unit, kinds in words."""
    rows = list(csv.DictReader(io.StringIO(download(shown, "etc", "CSV").decode())))
    result = show("etc", query=255)
    assert [f"{i},{j}" for i in range(4) for j in range(8)] == [
        f"{row['layer']},{row['head']}" for row in rows
    ]
    assert result.values["etc"].ravel().tolist() == [float(row["etc (tokens)"]) for row in rows]
    errors = [float(row["etc standard error"]) for row in rows]
    assert result.errors["etc"].ravel().tolist() == errors
    kind = next(name for name in rows[0] if name.startswith("kind"))
    assert [word for layer in result.text_of("kind") for word in layer] == [
        row[kind] for row in rows
    ]


def test_npz_holds_every_array(shown, show):
    """Values and errors exactly, and where they come from; nothing is pickled."""
    result = show("kernel", **CELL)
    with np.load(io.BytesIO(download(shown, "kernel", "NPZ")), allow_pickle=False) as file:
        for name, value in result.values.items():
            np.testing.assert_array_equal(value, file[name])
        for name, value in result.errors.items():
            np.testing.assert_array_equal(value, file[f"{name}_error"])
        assert "demo-gpt2" == json.loads(str(file["about"]))["model"]


def test_html_stands_alone(shown, show, context, tmp_path):
    """The file draws the same curve in a browser, with no request to anybody."""
    (tmp_path / "figure.html").write_bytes(download(shown, "kernel", "HTML"))
    page, asked = context.new_page(), []
    page.on("request", lambda request: asked.append(request.url.split(":")[0]))
    page.goto((tmp_path / "figure.html").as_uri())
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    curves = page.evaluate(
        "Object.fromEntries(document.querySelector('.js-plotly-plot')._fullData"
        ".map(trace => [trace.name, Array.from(trace.y)]))"
    )
    expected = show("kernel", **CELL).values["kernel"][7:256][::-1]
    assert plain(expected) == curves["kernel K (mean)"]
    assert {"file", "data", "blob"} >= set(asked)
