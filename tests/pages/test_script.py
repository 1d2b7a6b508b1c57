"""Every page as a script, without a browser: it runs, and what a stored result costs to show."""

import ast
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs

import numpy as np
import pytest

from pages import FIRST, NAMES, module_of, page_showing
from pages.etc_heatmap import page as etc_heatmap
from pages.instrument.lending import NEEDS
from pages.shared.jobs import jobs, pressed, results
from poskernel_core.analyses import ANALYSES
from poskernel_core.cli import main as cli
from poskernel_core.cli import precompute
from poskernel_core.common.rounding import NO_NUMBER
from poskernel_core.engine.plan import make_plan
from poskernel_core.models import curated
from tests.support.bound import heads_of_cards, opened, opened_as_linked, positions
from tests.support.server import ROOT
from tools.recorded import figures_on, open_page

FILES = sorted((ROOT / "pages").rglob("*.py"))
PAGES = [file for file in FILES if file.name == "page.py"]
KEY = re.compile(r'(?:key=|fitted\w*\(\s*|PARAMETER: Final = |choose_one\([^)]*?)"([a-z0-9]+)"')
"""A parameter of the address, as widgets name it."""
MODEL = "demo-attn-2l"
WAITING = ("compare", "methods", "position_sources")
WITH_BOX = ("position_vs_token",)
"""Pages that tell at first what rotary positions mean there."""
COMPUTE = ("forward", "passes", "statistics", "engine.worker")


def imports(file: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


@pytest.mark.parametrize("script", PAGES, ids=lambda file: file.parent.name)
def test_every_page_runs(shipped, script):
    name = script.parent.name
    app = opened_as_linked(name)
    need = NEEDS.get(module_of(name).PLACE.needs)
    lends = need is not None and not need.met(curated.CURATED[0].name)
    boxes = [*app.exception, *app.error, *app.warning, *app.success]

    assert [] == [each.value for each in boxes]
    assert lends + (name in WITH_BOX) == len(app.info)
    assert (name in WITH_BOX) == any("*token only* means" in each.value for each in app.info)
    assert 1 == len(app.title)
    assert {NO_NUMBER} >= {each.proto.placeholder for each in app.dataframe}
    assert 0 == len(app.get("progress"))
    assert figures_on(app) or name in (*WAITING, FIRST)
    assert shipped.worker_pid is None


def test_one_layer_has_nothing_to_compare_it_with(shipped):
    app = opened_as_linked("helix", model="gpt2-small-layer0")

    assert (3, 0) == (len(figures_on(app)), len(app.dataframe))
    assert [] == [each.value for each in (*app.exception, *app.error)]


def test_what_is_refused_is_said_once(shipped, monkeypatch):
    monkeypatch.setenv("POSKERNEL_MAX_WINDOWS", "60")
    monkeypatch.setattr(results, "session_id", lambda: "anna")
    app = opened_as_linked("head", model=MODEL, windows="200")
    for _ in range(2):
        open_page(app, "head")
        (box,) = app.error
        assert "200" in box.value
    assert shipped.worker_pid is None


@pytest.mark.parametrize(
    ("name", "charts"), [("etc_heatmap", 0), ("induction_recency", 7), ("position_vs_token", 7)]
)
def test_what_is_precomputed_is_that_of_the_pages(shipped, monkeypatch, name, charts):
    """On a run that ships: no result of a page is computed, and `precompute` asks for each."""
    told, asked, fetch = [], set(), results.fetch
    monkeypatch.setattr(precompute, "_answer_all", lambda _run, all_of_it: told.extend(all_of_it))
    assert 0 == cli.main(["precompute", MODEL, "--experiments"])
    monkeypatch.setattr(
        results, "fetch", lambda *more: asked.add(results.plan(*more[:3])) or fetch(*more)
    )
    app = opened_as_linked(name, model=MODEL)
    assert (charts, 0) == (len(figures_on(app)), len(app.get("progress")))
    assert shipped.worker_pid is None
    assert set() < {each.key for each in asked} <= {make_plan(each).key for each in told}


def test_pages_leave_computing_to_the_worker():
    banned = ("torch", *(f"poskernel_core.{module}" for module in COMPUTE))
    named = [(file.name, n) for file in FILES for n in imports(file)]
    assert [] == [pair for pair in named for b in banned if f"{pair[1]}.".startswith(f"{b}.")]


def test_every_page_says_where_it_stands():
    """None lies directly under `pages/`, where Streamlit would run it without `app.py`."""
    assert sorted(NAMES) == [file.parent.name for file in PAGES]
    assert len(PAGES) == len({module_of(name).PLACE.title for name in NAMES})
    assert ["__init__.py"] == [file.name for file in (ROOT / "pages").glob("*.py")]


def test_the_documentation_is_linked(shipped_only):
    links = [each.value for each in opened_as_linked("methods").sidebar.markdown]
    assert any("[Tutorial](docs/tutorial.html) · [Documentation](docs/)" in each for each in links)


def test_the_map_has_one_grid_and_a_note_at_the_first_visit(shipped_only, monkeypatch):
    """Other pages have the grid in the sidebar; there all choices are, on the Map too."""

    def grids(app):
        return [each.proto.component_name for each in app.sidebar.get("bidi_component")]

    beside, first = opened_as_linked("methods"), opened_as_linked()
    assert {"pk-grid"} == {*grids(beside)} - {*grids(first)}
    assert "Colour heads by" in [each.label for each in first.sidebar.selectbox]
    with monkeypatch.context() as waits:  # where it has none yet, the small one is there
        waits.setattr(etc_heatmap, "draw_measure", lambda *_, **__: None)
        assert {*grids(beside)} == {*grids(opened_as_linked())}
    note = "New here? What you see, in four steps"
    assert note in [each.label for each in first.expander]
    seen = SimpleNamespace(cookies={"introduction": "seen"}, headers={}, theme=None, url="")
    monkeypatch.setattr(etc_heatmap.st, "context", seen)
    drawn = []
    monkeypatch.setattr(etc_heatmap.st, "expander", lambda *given, **more: drawn.append(given))
    etc_heatmap.introduce()
    assert [] == drawn


def test_links_to_heads_that_show_something():
    """Of each kind the strongest, if it is strong; nothing of what is not known."""
    induction = {"induction": np.array([[0.1, 0.31]]), "duplicate": np.array([[0.4, 0.29]])}
    found = {
        "induction-scores": SimpleNamespace(values=induction),
        "copying": SimpleNamespace(
            values={"copying_share_first_layer": np.array([[np.nan, 0.51]])}
        ),
        "sinks": SimpleNamespace(values={"sink": np.array([[0.29, 0.1]])}),
    }
    assert [
        ("an induction head", "induction_recency", "L0H1", "induction"),
        ("a head that looks for duplicates", "head", "L0H0", "induction"),
        ("a head that copies", "head", "L0H1", "copying"),
    ] == [*etc_heatmap.stories(found.get)]
    found["copying"].values["copying_share_first_layer"][:] = np.nan
    assert 2 == len([*etc_heatmap.stories(found.get)])


@pytest.mark.parametrize("name", ["helix", "rotary_spectrum", "over_training"])
def test_a_sentence_is_said_once(shipped, name):
    told = [each["finding"] for each in heads_of_cards(opened_as_linked(name)) if each["finding"]]
    assert told
    assert len(told) == len({*told})


def test_a_question_is_shown_by_one_page():
    declared = [question for name in NAMES for question in module_of(name).PLACE.questions]
    assert len(declared) == len(set(declared))
    assert set(declared) < ANALYSES.keys()
    for name in NAMES:
        assert {name} >= {page_showing(question) for question in module_of(name).PLACE.questions}
    assert {FIRST} == {page_showing(question) for question in ANALYSES.keys() - set(declared)}


@pytest.mark.parametrize("name", NAMES[:-1])
def test_a_link_opens_the_page_of_its_question(shipped_only, name):
    question = next(each for each in ANALYSES if page_showing(each) == name)
    app = opened_as_linked(show=question, model="demo-gpt2", corpus="bible")
    assert [module_of(name).PLACE.title] == [each.value for each in app.title]
    assert ("bible", False) == (app.query_params["corpus"], "show" in app.query_params)
    assert not app.warning


def test_a_parameter_of_the_address_means_one_thing():
    """What a reader chose goes along to other pages, under its name: no two pages share one."""
    users: dict[str, set[str]] = {}
    for file in FILES:
        folder = file.relative_to(ROOT / "pages").parts[0]
        for key in KEY.findall(file.read_text("utf-8")):
            users.setdefault(key, set()).add(folder)
    assert {"measure", "skip", "zoom", "text", "against", "axis"} <= users.keys()
    assert {} == {key: pages for key, pages in users.items() if len(pages) > 1}


def test_the_session_and_the_address_share_no_name():
    """A widget that the address sets is stored under its name, where nothing else may be."""
    linked = {key for file in FILES for key in KEY.findall(file.read_text("utf-8"))}
    kept = {jobs.LEFT, jobs.AGAIN, jobs.STOPPING, jobs.STOPPED}
    kept |= {results.WAITED, pressed.WANTED}

    assert "again" in linked
    assert set() == linked & kept


def test_fewer_query_positions_are_said(monkeypatch):
    """Of the widest models a run has fewer: the sidebar says so, and offers these."""
    assert "query positions" not in opened("methods", context="64").sidebar.caption[1].value
    monkeypatch.setattr("poskernel_core.models.geometry.KEPT", 4.5e6)
    app = opened("methods", context="64")
    assert app.sidebar.caption[1].value.endswith("only 8 query positions")
    assert [*range(7, 64, 8)] == positions(app)


def test_the_front_end_alone(monkeypatch):
    """Without the server's part, figures would wait for their numbers for ever: it says so."""
    monkeypatch.setattr(sys, "argv", [str(ROOT / "app.py")])
    alone = opened("methods")
    assert "run `serve.py` instead" in alone.error[0].value
    assert not alone.sidebar.caption


def test_models_that_compute_are_one_click_away(shipped_only):
    (line,) = (each.value for each in opened_as_linked().caption if "compute live" in each.value)
    leads = dict(re.findall(r"\[([^]]+)\]\(etc_heatmap\?([^)]+)\)", line))
    assert [*curated.BUNDLED_MODELS] == [*leads]
    for name, query in leads.items():
        assert {"model": [name]} == parse_qs(query)


def test_a_kind_that_is_open_says_so(shipped_only):
    """Where its interval holds the limit that decides it."""
    for head, said in (("L16H0", "**local** |"), ("L0H3", "** (not resolved) |")):
        app = opened("etc_heatmap", model="smollm2-135m-instruct-q4", head=head)
        (table,) = (each.value for each in app.markdown if each.value.startswith("| Kind |"))
        assert said in table.splitlines()[0]
