"""A result as notebooks show it: figure, data frame, link, strangers' text."""

import io
import json
import sys
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter

import poskernel_core as pk
from pages.interventions import circuit
from pages.shared.jobs import results
from poskernel_core import api
from poskernel_core.analyses import find
from poskernel_core.common.errors import BadRequest
from poskernel_core.common.result import texts_array
from poskernel_core.engine.engine import describe_run
from poskernel_core.export import notebook as views
from poskernel_core.export.files import to_csv
from poskernel_core.export.notebook import View, page_address
from tests.support import made_results
from tests.support.bound import opened_as_linked
from tests.support.made_results import result

HOME = "http://lab.org/pk"


@pytest.fixture
def first(monkeypatch):
    """No output holds plotly.js yet."""
    monkeypatch.setattr(views, "EMBEDDED", [])


@pytest.fixture
def made():
    """A result of one head, with a text in it that means harm."""
    pattern = np.tril(np.full((3, 3), 0.5))
    numbers = np.full(3, 0.25)
    found = result(
        "own-text-head",
        {},
        {"pattern": pattern, "attention_distance": numbers},
        coordinates={"query": np.arange(3)},
    )
    found.params.update(head="L0H1", text="</script><b>", skip=4)
    found.texts["tokens"] = texts_array(["a", "</script><script>alert(1)</script>", "c"])
    found.axes["tokens"], found.units["tokens"] = ("pos",), "token"
    return found


def test_all_kernels_have_the_same_axis(shipped):
    """As on the page: of a local head, L2H6, and of L0H0, which is spread over all tokens."""
    asked = {"query": 400, "engine": shipped}
    views = [pk.view("kernel", "demo-gpt2", head=head, **asked) for head in ("L2H6", "L0H0")]
    assert ["log", "log"] == [view.figure.layout.xaxis.type for view in views]


def test_values_are_the_table(made):
    frame = View(made).values
    read = pd.read_csv(io.StringIO(to_csv(made)), comment="#")

    pd.testing.assert_frame_equal(frame, read, check_dtype=False)
    assert "demo" == frame.attrs["model"]
    assert 0.25 == frame["attention_distance (total variation distance)"].iloc[-1]


def test_text_where_there_are_no_figures(made):
    told = repr(View(made, HOME)).splitlines()
    assert told[0].startswith("L0H1, model demo")
    assert "  pattern [query=3 key=3] (share of attention)" in told
    assert told[-1].startswith(f"{HOME}/?show=own-text-head&")

    made.provenance["model"] = "<img src=x>"  # a stranger's text is text
    page = View(made, HOME).html(library=False)
    assert 1 == page.count("<script>") == page.count("</script>")
    assert "<img" not in page
    assert "&lt;img src=x&gt;" in page


def test_the_library_comes_once(made, first, monkeypatch):
    """In the first cell with a figure, and in it again when it is run again; by hand otherwise."""
    has = []

    def cell(name, **given):
        shell = SimpleNamespace(get_parent=lambda: {"metadata": {"cellId": name}})
        place = SimpleNamespace(get_ipython=lambda: shell if name else None)
        monkeypatch.setitem(sys.modules, "IPython", place)
        data, _ = DisplayFormatter().format(View(made, **given))
        has.append("window.Plotly = Plotly" in data["text/html"])

    for name, given in (
        ("one", {}), ("two", {}), ("two", {"embed": True}), ("one", {}), ("one", {"embed": False}),
    ):  # fmt: skip
        cell(name, **given)
    assert [True, False, True, True, False] == has
    monkeypatch.setattr(views, "EMBEDDED", [])  # outside of a notebook
    for _ in range(2):
        cell("")
    assert [True, True] == has[5:]


@pytest.mark.parametrize(
    ("analysis", "asked"),
    [("kernel", {"head": "L2H6", "query": 303}), ("etc", {"query": 303, "params": {"skip": 7}})],
)
def test_a_link_shows_the_same(shipped_engine, monkeypatch, analysis, asked):
    view = pk.view(analysis, "demo-gpt2", address=HOME, engine=shipped_engine, **asked)
    monkeypatch.setattr(results, "engine", lambda: shipped_engine)
    seen, fetch = [], results.fetch
    monkeypatch.setattr(results, "fetch", lambda *a: seen.append(found := fetch(*a)) or found)
    app = opened_as_linked(**parse_qs(urlsplit(view.link).query))

    assert not app.warning
    assert not app.exception
    same = [
        each for each in seen
        if each is not None and each.analysis == analysis and each.params == view.result.params
    ]  # fmt: skip
    assert same
    chosen = {"layer": 2, "head": 6} if analysis == "kernel" else {"query": 303}
    expected = same[0].select(**chosen).values[analysis]
    np.testing.assert_array_equal(expected, view.result.values[analysis])


PROMPTS = {"clean": "One two", "changed": "One six", "answer": " a", "other_answer": " b"}


def test_a_link_types_the_same(shipped, shipped_only):
    """Heads stand where a reader types them."""
    made = made_results.answer("ablate-heads", heads="L0H1, L1H2")
    link = parse_qs(urlsplit(page_address(made, HOME)).query, keep_blank_values=True)
    app = opened_as_linked(**{**link, "model": "demo-gpt2", "context": "512"})
    assert not app.warning
    assert "L0H1, L1H2" in [each.value for each in app.text_input]


OTHER_WAY = {"direction": "changed-into-clean"}
EMPTY = PROMPTS | {"answer": "", "other_answer": ""}
TABLE = {"pairs": json.dumps(PROMPTS), "skip_bad": True}


@pytest.mark.parametrize(
    ("analysis", "asked"),
    [
        ("patch-heads", PROMPTS | {"what": "values"}),
        ("patch-heads", PROMPTS | {"metric": "log-probability", "other_answer": ""} | OTHER_WAY),
        ("patch-heads", EMPTY | {"what": "pattern"}),
        ("patch-heads", EMPTY | {"metric": "loss"}),
        ("patch-heads", {"maker": "order", "count": 17, "exact": "all", "what": "pattern"}),
        ("patch-positions", TABLE | OTHER_WAY | {"metric": "log-probability", "head": "L2"}),
        ("edges", TABLE | OTHER_WAY),
        ("faithfulness", TABLE | {"outside": "kernel"}),
        ("faithfulness", {"maker": "copying", "count": 11, "outside": "mean", "order": "L2H3",
                          "skip": 7}),
    ],
)  # fmt: skip
def test_a_link_asks_the_same_of_prompts(monkeypatch, analysis, asked):
    """All that changes what is shown of a pair or a set; empty answers are not an example's."""
    seen, question = [], find(analysis)
    heads = made_results.answer("patch-heads", sizes={"layer": 4, "head": 8})
    heads.values.update(
        clean_metric=np.array(5.0), changed_metric=np.array(-5.0), difference=np.array(10.0)
    )
    heads.errors.clear()

    def fetch(other, run, params, *_):
        seen.append((other.name, other().completed(run, params)))
        return heads if other.name == "patch-heads" != analysis else None

    monkeypatch.setattr(results, "fetch", fetch)
    monkeypatch.setattr(circuit, "fetch_when_asked", fetch)
    params = question.completed(describe_run("demo-gpt2"), question.params(**asked))
    made = replace(heads, analysis=analysis, params=params.model_dump())
    link = parse_qs(urlsplit(page_address(made, HOME)).query, keep_blank_values=True)
    app = opened_as_linked(**{**link, "model": "demo-gpt2", "context": "512"})
    assert not app.exception
    assert [] == [each.value for each in app.warning]
    assert (analysis, params) in seen


@pytest.mark.parametrize("analysis", ["edges", "faithfulness"])
def test_a_link_to_a_circuit_names_its_maker(analysis):
    """And no corpus, where the answer is of prompts alone."""
    result = made_results.answer(analysis, maker="order", count=11)
    run = result.provenance | {"corpus": "random", "windows": 11}
    link = parse_qs(urlsplit(page_address(replace(result, provenance=run), HOME)).query)
    told = [link[name] for name in ("mode", "maker", "count")]
    assert [["From heads to a circuit"], ["order"], ["11"]] == told
    assert not {"corpus", "context", "windows"} & {*link}


def test_addresses(made, monkeypatch):
    monkeypatch.setattr(api, "show", lambda *_, **__: made)
    monkeypatch.delenv("POSKERNEL_ADDRESS", raising=False)
    assert pk.view("own-text-head", "demo").link is None
    monkeypatch.setenv("POSKERNEL_ADDRESS", "https://lab.org/")
    assert pk.view("own-text-head", "demo").link.startswith("https://lab.org/?show=own-text-head&")
    assert pk.view("own-text-head", "demo", address=HOME).link.startswith(HOME)
    for wrong in ("localhost:8501", "javascript:alert(1)", "http://", "http://a/?b=c", ""):
        with pytest.raises(BadRequest, match="such as http://localhost:8501"):
            pk.view("own-text-head", "demo", address=wrong)


@pytest.mark.browser
def test_figures_from_disk(made, first, page, tmp_path):
    file = tmp_path / "outputs.html"
    parts = [View(made).html(library=False), View(made).html(library=True)]
    file.write_text(f"<!DOCTYPE html><meta charset=utf-8>{''.join(parts)}", encoding="utf-8")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())

    for plot in range(2):
        page.locator(".js-plotly-plot").nth(plot).locator(".main-svg").first.wait_for()
    assert 2 == page.locator(".js-plotly-plot").count()
    assert [file.as_uri()] == [each for each in asked if not each.startswith(("data:", "blob:"))]
