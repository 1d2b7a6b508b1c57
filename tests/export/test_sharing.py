"""Results as folders for others: a static site that works from a disk, a data set with its card."""

import json
import re
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import expect
from safetensors import safe_open

import poskernel_core as pk
from poskernel_core.analyses import ANALYSES
from poskernel_core.analyses.definitions import errors_of
from poskernel_core.api import build_request
from poskernel_core.cli.main import main
from poskernel_core.engine.engine import Engine
from poskernel_core.export.gallery import GalleryRun, gallery
from poskernel_core.export.hub_card import hub_card
from poskernel_core.storage.store import Store

MODEL, WINDOWS, CONTEXT, QUERY = "demo-attn-2l", 7, 53, 52
RUN = ["--windows", str(WINDOWS), "--context", str(CONTEXT)]
CELLS = [f"L{layer}H{head}" for layer in range(2) for head in range(8)]

# pytest runs tests of one browser together: where all have it, module fixtures are made once.
pytestmark = pytest.mark.usefixtures("near_worker", "browser_name")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def answers(cache):
    engine = Engine(Store(cache))
    asked = {"engine": engine, "windows": WINDOWS, "context": CONTEXT}
    whole = build_request("verdicts", MODEL, windows=WINDOWS, context=CONTEXT)[0]
    missing = [n for n in engine.missing(whole) if hasattr(ANALYSES[n], "runs")]
    out = {"params": {"leave_out": ",".join(missing), "query": QUERY}}
    found = {
        "verdicts": pk.show("verdicts", MODEL, **asked, **out),
        "kernel": pk.show("kernel", MODEL, query=QUERY, **asked),
        "profile": pk.show("previous-token", MODEL, **asked),
        "sinks": pk.show("sinks", MODEL, **asked),
    }
    yield found
    engine.close()
    engine.store.close()


@pytest.fixture(scope="module")
def site(answers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    (folder / "heads").mkdir()
    measures = {m.title: m for question in ANALYSES.values() for m in question.measures}
    for name, text in gallery(GalleryRun(**answers, measures=measures, query=QUERY)):
        (folder / name).write_text(text, "utf-8")
    return folder


class Links(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.addresses, self.ids = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        known = dict(attrs)
        self.addresses += [known[name] for name in ("href", "src") if name in known]
        self.ids |= {known["id"]} if "id" in known else set()


def test_every_link_leads_somewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert [f"{cell}.html" for cell in CELLS] == sorted(p.name for p in pages[:-1])
    for page in pages:
        links = Links(page.read_text("utf-8"))
        for address in links.addresses:
            assert not re.match(r"[a-z]+:|//|/", address), address
            name, _, place = address.partition("#")
            target = (page.parent / name) if name else page
            assert target.is_file(), address
            if place and not name:
                assert place in links.ids


def test_cells_say_the_numbers(site, answers):
    text = (site / "index.html").read_text("utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    verdicts = answers["verdicts"]
    assert [one["title"] for one in data] == verdicts.words("measure")
    etc = next(one for one in data if one["title"] == "effective token count")
    place = verdicts.words("measure").index("effective token count")
    shown = [[float(cell.partition(" ")[0]) for cell in row] for row in etc["texts"]]
    np.testing.assert_allclose(shown, verdicts.values["value"][place], rtol=1e-3)
    kinds = next(one for one in data if one["title"] == "kind of kernel")
    pairs = {*zip(np.ravel(kinds["texts"]), np.ravel(kinds["colours"]), strict=True)}
    assert len(pairs) == len({word for word, _ in pairs}) == len({colour for _, colour in pairs})


def test_pages_of_heads(site, answers):
    """A table reads back; pages say what errors count."""
    kernel = answers["kernel"]
    table = pd.read_csv(site / "heads" / "L1H3.csv", comment="#")
    column = next(name for name in table if name.startswith("kernel ("))
    shown = kernel.select(layer=1, head=3).values["kernel"]
    np.testing.assert_allclose(table[column].dropna(), shown, rtol=1e-12)
    assert errors_of(answers["verdicts"]) in unescape((site / "index.html").read_text("utf-8"))
    page = unescape((site / "heads" / "L1H3.html").read_text("utf-8"))
    assert errors_of(kernel) in page
    assert "<th>value</th><th>unit</th>" in page


def test_a_data_set_for_the_hub(answers, tmp_path):
    files = dict(hub_card([("Kernels", answers["kernel"])], answers["verdicts"]))
    assert set(files) == {"README.md", "measures.csv", "kernel.safetensors"}
    assert files["README.md"].startswith("---\nlicense: mit\n")
    assert "`kernel.safetensors` | Kernels" in files["README.md"]
    assert not files["measures.csv"].startswith("#")
    assert errors_of(answers["verdicts"]) in files["README.md"]

    (tmp_path / "kernel.safetensors").write_bytes(files["kernel.safetensors"])
    with safe_open(tmp_path / "kernel.safetensors", framework="numpy") as opened:
        header = json.loads(opened.metadata()["header"])
        kernel = opened.get_tensor("values/kernel")
    np.testing.assert_array_equal(kernel, answers["kernel"].values["kernel"])
    assert header["axes"]["kernel"] == ["layer", "head", "key"]


def test_refused_without_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "store"))
    (tmp_path / "short.txt").write_text("one two three")
    run = ["--corpus", str(tmp_path / "short.txt"), *RUN]
    for option in ("--gallery", "--hub-card", "--headvis"):
        assert main(["export", MODEL, option, str(tmp_path / "out" / "folder"), *run]) == 2
        assert "gives 0 windows" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


def test_on_the_command_line(answers, cache, tmp_path, monkeypatch, capsys):
    """Over an earlier one, but over nothing else."""
    monkeypatch.setenv("POSKERNEL_CACHE", str(cache))
    (tmp_path / "file").write_text("x")

    def export(option, place, *given):
        code = main(["export", MODEL, *given, option, str(place), *(() if given else RUN)])
        return code, capsys.readouterr().err

    for option, name in (("--gallery", "index.html"), ("--hub-card", "README.md")):
        folder = tmp_path / option / "folder"
        for _ in range(2):
            code, said = export(option, folder)
            assert (0, True) == (code, f"written to {folder}" in said)
            assert (folder / name).is_file()
        (folder / name).write_text("mine")
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(folder)
        for place in (folder, tmp_path / "link"):
            code, said = export(option, place)
            assert (2, True) == (code, "files that were not exported like this" in said)
        assert "mine" == (folder / name).read_text()
        code, said = export(option, tmp_path / "file")
        assert (2, True) == (code, "Cannot make the folder" in said)
        code, said = export(option, folder, "a.zip")
        assert (2, True) == (code, "Give one of FILE, --gallery, --hub-card" in said)


@pytest.mark.browser
def test_from_the_disk_in_a_browser(site, page):
    asked, faults = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(f"{site.as_uri()}/index.html#measure=attention%20sink")
    expect(page.locator("#measure option:checked")).to_have_text(re.compile("^attention sink"))
    cell = page.locator("a[data-at='1,3']")
    before = cell.evaluate("each => each.style.background")
    page.locator("#measure").select_option(index=0)
    assert cell.evaluate("each => each.style.background") != before
    cell.hover()
    expect(page.locator("#told")).to_contain_text("L1H3, effective token count:")
    assert "#measure=effective%20token%20count" in page.url
    cell.click()
    expect(page.locator("h1")).to_have_text("L1H3")
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    expect(page.locator(".js-plotly-plot")).to_have_count(3)
    page.locator("a[rel=next]").click()
    expect(page.locator("h1")).to_have_text("L1H4")
    page.goto(f"{site.as_uri()}/index.html#measure=nonsense")
    expect(page.locator("#told")).to_contain_text("no measure nonsense")
    assert faults == []
    assert all(url.startswith(("file:", "data:", "blob:")) for url in asked)
