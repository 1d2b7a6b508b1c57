"""The script that decides what is an entry of the browser's history, without a server."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, Route

pytestmark = pytest.mark.browser

ROOT = "http://127.0.0.1:1/"
SCRIPT = Path("serving/page.js").read_text("utf-8")
HTML = f"<script>window.time = 0; performance.now = () => time\n{SCRIPT}</script>"
WRITE = "address => history.pushState({}, '', address)"
"""As Streamlit writes an address, and opens a page."""


@pytest.fixture
def write(page: Page):
    """Write addresses, each so many milliseconds later; return how many entries that makes."""

    def answer(route: Route) -> None:
        route.fulfill(body=HTML, content_type="text/html")

    def written(after: int, *addresses: str) -> int:
        before = page.evaluate("history.length")
        for address in addresses:
            page.evaluate(f"time += {after}")
            page.evaluate(WRITE, address)
            assert page.url.startswith(f"{ROOT}{address}")
        return page.evaluate("history.length") - before

    page.route(f"{ROOT}**", answer)
    page.goto(f"{ROOT}helix?head=L0H0")
    return written


def act(page: Page) -> None:
    page.evaluate("dispatchEvent(new Event('pointerdown'))")


@pytest.mark.parametrize("kind", ["pointerdown", "keydown"])
def test_before_the_reader_acts_nothing_is_an_entry(page: Page, write, kind):
    """What a link is understood as is written too."""
    assert 0 == write(1000, "helix?head=L1H1")
    page.evaluate(f"dispatchEvent(new Event('{kind}'))")
    assert 1 == write(1000, "helix?head=L2H2")


@pytest.mark.parametrize("key", ["head", "model", "query"])
def test_a_choice_is_an_entry_a_second_after_the_last(page: Page, write, key):
    act(page)
    assert 0 == write(999, f"helix?{key}=1")
    assert 1 == write(1, f"helix?{key}=2")
    assert 0 == write(500, f"helix?{key}=3")
    assert 1 == write(500, f"helix?{key}=4")
    assert 0 == write(1000, f"helix?{key}=4&skip=5", f"helix?{key}=4&skip=6")


def test_a_page_is_an_entry_and_its_first_address_is_none(page: Page, write):
    """It is bare at first; Back leads from it to the page before, and a choice there counts."""
    assert 1 == write(1000, "kernel")
    act(page)
    assert 0 == write(1000, "kernel?head=L0H0")
    assert 1 == write(1000, "kernel?head=L1H1")
    assert 1 == write(1000, "context")
    page.go_back()
    page.wait_for_url("**/kernel?head=L1H1")
    page.evaluate("time += 1000")
    page.evaluate(WRITE, "kernel?head=L2H2")
    page.go_back()
    page.wait_for_url("**/kernel?head=L1H1")


def test_the_card_that_a_link_names_is_kept_on_its_page(page: Page, write):
    page.evaluate("location.hash = 'morph'")
    act(page)
    for skip, hash_text in ((0, "#morph"), (1000, "#morph")):
        write(skip, f"helix?skip={skip}")
        assert hash_text == page.evaluate("location.hash")
    write(1000, "helix?head=L1H1")
    page.evaluate("location.hash = 'morph'")
    write(0, "kernel")
    assert "" == page.evaluate("location.hash")


def test_two_entries_that_say_the_same_are_one_step(page: Page, write):
    """A choice that is taken back at once leaves them: Back and Forward pass the second."""
    act(page)
    for after, query in ((1000, "L1H1"), (0, "L1H1&skip=3"), (1000, "L2H2"), (0, "L1H1")):
        write(after, f"helix?head={query}")
    for step, query in ((-1, "L0H0"), (1, "L1H1&skip=3")):
        page.evaluate(f"history.go({step})")
        page.wait_for_url(f"**/helix?head={query}")


def test_a_page_that_is_left_stays_as_it_was(page: Page, write):
    """The field that finds pages leaves it, and the head that it chose belongs to the next."""
    page.evaluate("dispatchEvent(new Event('leave'))")
    page.evaluate(WRITE, "helix?head=L5H5")
    assert f"{ROOT}helix?head=L0H0" == page.url
    assert 1 == write(1000, "kernel")
    write(0, "kernel?head=L5H5")
    page.go_back()
    page.wait_for_url("**/helix?head=L0H0")


def test_links_between_pages_open_no_tab(page: Page, write):
    """But in a frame on another site they do, as all others."""
    click = """([link, embedded]) => {
      if (embedded) document.documentElement.dataset.embed = "";
      document.body.innerHTML = `<a href="${link}" target="_blank">go</a>`;
      const there = document.querySelector("a");
      there.addEventListener("click", (event) => event.preventDefault());
      there.click();
      return there.target;
    }"""
    for link, embedded, target in (
        ("kernel?head=L0H1", False, "_self"),
        ("docs/tutorial.html", False, "_blank"),
        ("http://example.org/kernel", False, "_blank"),
        ("kernel?head=L0H1", True, "_blank"),
    ):
        assert target == page.evaluate(click, [link, embedded])
