"""Links of the documentation to the dashboard: each names a page, one of its cards, its widgets."""

import ast
import re
from urllib.parse import parse_qs, urlsplit

import pytest

from pages import FIRST, NAMES
from pages.shared.choices.choices import waits
from pages.shared.jobs import results
from tests.support import ROOT
from tests.support.bound import opened_as_linked

BASE = "http://localhost:8501/"
FOUND = {
    link: file.name
    for file in sorted((ROOT / "docs").rglob("*.md"))
    if not file.name.startswith("heads-of-")  # which is generated, and has one link for each head
    for link in re.findall(rf"\(({BASE}[^)\s]*)\)", file.read_text("utf-8"))
}


def reached(name, seen=None):
    """The modules of the dashboard that a module imports, itself included."""
    seen = {} if seen is None else seen
    file = ROOT.joinpath(*name.split(".")).with_suffix(".py")
    if name not in seen and file.is_file():
        seen[name] = tree = ast.parse(file.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "pages":
                for each in (node.module, *(f"{node.module}.{one.name}" for one in node.names)):
                    reached(each, seen)
    return seen


def calls(tree, names):
    """The first arguments of all calls of functions with these names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and getattr(node.func, "id", "") in names:
            yield node.args[0]


def cards(page):
    """A page's cards as patterns: the names given to `card`, and to what passes them on."""
    trees = reached(f"pages.{page}.page").values()
    names, before = {"card"}, set()
    while names != before:
        before = names
        names = names | {
            each.name
            for tree in trees
            for each in ast.walk(tree)
            if isinstance(each, ast.FunctionDef) and each.args.args
            for first in calls(each, names)
            if isinstance(first, ast.Name) and first.id == each.args.args[0].arg
        }
    for first in (each for tree in trees for each in calls(tree, names)):
        if isinstance(first, ast.Constant):
            yield re.escape(first.value)
        elif isinstance(first, ast.JoinedStr):
            yield "".join(
                re.escape(part.value) if isinstance(part, ast.Constant) else r"[\w-]+"
                for part in first.values
            )


CARDS = {name: [*cards(name)] for name in NAMES}


def test_links_are_there_and_cards_are_known():
    """The two tests below would pass with nothing to look at."""
    assert len(FOUND) > 80
    assert all(CARDS[name] for name in NAMES if name != "methods")
    assert {"map", "layer"} <= {*CARDS["positional_kernels"]}
    assert "map" not in CARDS["previous_token"]


@pytest.mark.parametrize("link", FOUND)
def test_a_link_names_a_page_and_its_card(link):
    parts = urlsplit(link)
    page = parts.path.strip("/") or FIRST
    assert page in NAMES
    assert (page != FIRST) == bool(parts.path.strip("/"))
    known = ["", *CARDS[page]]
    assert any(re.fullmatch(each, parts.fragment) for each in known), known


@pytest.mark.parametrize("link", {re.sub("&compute=true|#.*", "", each): 0 for each in FOUND})
def test_a_link_asks_for_nothing_that_its_page_lacks(link, shipped, monkeypatch):
    """With nothing computed: no notice about a model, a head or a setting that does not fit."""
    monkeypatch.setattr(results, "fetch", lambda *_: waits())
    parts = urlsplit(link)
    app = opened_as_linked(parts.path.strip("/"), **parse_qs(parts.query))

    assert not app.exception
    assert [] == [each.value for each in app.warning]
