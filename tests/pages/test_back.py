"""Away and back on every page: what a reader chose is in the address, and there again."""

from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import expect

from tests.support.bound import bound, opened, other_value
from tests.support.server import serve
from tests.support.visit import PATIENCE, go, settle, visit
from tools.recorded import page_names

pytestmark = pytest.mark.browser

FIRST = "etc_heatmap"
HELD = """() => Object.fromEntries(
  [...document.querySelectorAll("[data-testid=stMain] :is(input, textarea, [role=slider])")].map(
    node => [node.getAttribute("aria-label") || node.closest("[data-testid]")?.innerText,
      node.getAttribute("aria-valuenow") ?? (node.type === "checkbox" ? node.checked : node.value)]
))"""


@pytest.fixture(scope="module")
def still(tmp_path_factory):
    """A server with what comes with the project, which computes nothing."""
    root = tmp_path_factory.mktemp("still")
    settings = {"POSKERNEL_READ_ONLY": "1"}
    with serve(root / "cache", root / "server.log", shipped=True, settings=settings) as started:
        yield started


def chosen(name: str) -> dict[str, list[str]]:
    """Other values for the widgets of a page than those that it opens with, as its link.

    Values are left out that take a part of the page away, since that would have to be computed.
    """
    link: dict[str, list[str]] = {}
    first = bound(opened(name).main)
    for key, widget in first.items():
        more = link | {key: other_value(widget)}
        found = bound(opened(name, **more).main) if more[key] else {}
        if first.keys() <= found.keys() and found[key].value != widget.value:
            link = more
    return link


@pytest.mark.parametrize("name", page_names())
def test_away_and_back(page, still, shipped_only, name):
    """The address and every field are as they were; a step further back is where one came from."""
    link = chosen(name) | {"head": ["L1H5"]}
    visit(page, f"{still.url}/{'' if name == FIRST else name}?{urlencode(link, doseq=True)}")
    address, held, title = page.url, page.evaluate(HELD), page.locator("h1").inner_text()
    assert link.keys() <= parse_qs(urlsplit(address).query).keys()

    go(page, "Methods" if name != "methods" else "Helix")
    page.go_back()
    expect(page.get_by_role("heading", level=1, name=title)).to_be_visible(timeout=PATIENCE)
    settle(page)

    assert (address, held) == (page.url, page.evaluate(HELD))
    expect(page.get_by_test_id("stException")).to_have_count(0)


def test_a_link_opens_in_its_place(page, still):
    """Links between pages open no new tab; Back leads to where one came from."""
    visit(page, f"{still.url}/?model=demo-gpt2")
    tabs = len(page.context.pages)
    page.get_by_role("link", name="Everything about L2H6").click()
    expect(page.get_by_role("heading", level=1, name="Overview")).to_be_visible(timeout=PATIENCE)
    settle(page)
    assert tabs == len(page.context.pages)
    page.go_back()
    expect(page.get_by_role("heading", level=1, name="Map")).to_be_visible(timeout=PATIENCE)
