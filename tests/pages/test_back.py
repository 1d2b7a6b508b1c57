"""Away and back on every page: what a reader chose is in the address, and there again."""

import re
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import expect

from tests.support.bound import bound, opened, other_value
from tests.support.visit import LATER, PATIENCE, cell, choose, go, settle, values, visit

pytestmark = pytest.mark.browser

FIRST = "etc_heatmap"
PAGES = (FIRST, "helix", "interventions", "own_text")
"""Between them they have every kind of field, and a text that goes by its name in the address."""
HELD = """() => Object.fromEntries(
  [...document.querySelectorAll("[data-testid=stMain] :is(input, textarea, [role=slider])")].map(
    node => [node.getAttribute("aria-label") || node.closest("[data-testid]")?.innerText,
      node.getAttribute("aria-valuenow") ?? (node.type === "checkbox" ? node.checked : node.value)]
))"""


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


@pytest.mark.parametrize("name", PAGES)
def test_away_and_back(page, still, shipped_only, name):
    """The address and every field are as they were; a step further back is where one came from."""
    link = chosen(name) | {"head": ["L1H5"]}
    visit(page, f"{still.url}/{'' if name == FIRST else name}?{urlencode(link, doseq=True)}")
    address, held, title = page.url, page.evaluate(HELD), page.locator("h1").inner_text()
    assert link.keys() <= parse_qs(urlsplit(address).query).keys()

    if name == FIRST:
        a_link_opens_in_its_place(page)
    else:
        go(page, "Methods")
    page.go_back()
    expect(page.get_by_role("heading", level=1, name=title)).to_be_visible(timeout=PATIENCE)
    settle(page)

    assert (address, held) == (page.url, page.evaluate(HELD))
    expect(page.get_by_test_id("stException")).to_have_count(0)


def test_back_and_forward_lack_nothing(page, still, shipped_only):
    """The page shows what each address says; only a new choice can be one that a model lacks."""
    position = page.get_by_test_id("stSidebar").locator(".position input")
    visit(page, f"{still.url}/?head=L20H1")
    before, seen = page.evaluate("history.length"), {page.url: values(page)}
    for act, moved in (
        (lambda: cell(page, "L1H3").click(), []),
        (lambda: position.press("ArrowLeft"), []),
        (lambda: position.press("ArrowRight"), []),
        (lambda: cell(page, "L21H2").click(), []),
        (lambda: choose(page, "Model", "demo-attn-2l"), ["L21H2; shown is L1H2"]),
        (lambda: cell(page, "L0H1").click(), []),
    ):
        page.wait_for_timeout(LATER)
        act()
        settle(page)
        assert [f"demo-attn-2l has no head {heads} instead." for heads in moved] == notices(page)
        seen[page.url] = values(page)

    steps, met = page.evaluate("history.length") - before, set()
    for step in (*[-1] * steps, steps, -steps, *[1] * steps):
        here = page.url
        page.evaluate(f"history.go({step})")
        expect(page).not_to_have_url(here)
        settle(page)
        assert ([], seen.get(page.url, values(page))) == (notices(page), values(page))
        met.add(page.url)
    assert {"L20H1", "L1H3", "L1H2", "L0H1"} <= {seen[each]["Head"] for each in met & seen.keys()}


def test_a_choice_that_is_taken_back_at_once_leaves_no_step(page, still, shipped_only):
    """Back from it is what one chose before, and Forward leads to it again."""
    visit(page, f"{still.url}/?model=demo-gpt2&head=L0H1")
    page.wait_for_timeout(LATER)
    cell(page, "L1H3").click()
    settle(page)
    page.wait_for_timeout(LATER)
    page.evaluate("""() => {
      const there = location.href;
      for (const each of [there.replace("L1H3", "L2H2"), there]) history.pushState({}, "", each);
    }""")
    for act, head in ((page.go_back, "L0H1"), (page.go_forward, "L1H3")):
        act()
        expect(page).to_have_url(re.compile(f"head={head}"))
        settle(page)
        assert head == values(page)["Head"]


def notices(page):
    """What the page says of settings that it does not show."""
    return page.locator(".st-key-notice").get_by_test_id("stMarkdownContainer").all_inner_texts()


def a_link_opens_in_its_place(page):
    """Links between pages open no new tab."""
    tabs = len(page.context.pages)
    page.get_by_role("link", name="Everything about L1H5").click()
    expect(page.get_by_role("heading", level=1, name="Overview")).to_be_visible(timeout=PATIENCE)
    settle(page)
    assert tabs == len(page.context.pages)
