"""The tutorial, followed link by link: each page shows what the text says one should see."""

import re

import pytest
from playwright.sync_api import expect

from tests.support import ROOT
from tests.support.server import serve
from tests.support.visit import no_trouble, visit

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TEXT = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
HERE = "http://localhost:8501"
LINK = re.compile(rf"\]\({HERE}(/[^)]*)\)")
QUOTED = re.compile(r"^> (.*(?:\n> .*)*)", re.MULTILINE)


def steps():
    """The links, in order, each with the quotations between it and the next."""
    _, *parts = LINK.split(TEXT)
    for link, text in zip(parts[::2], parts[1::2], strict=True):
        yield link, [each.replace("\n> ", " ") for each in QUOTED.findall(text)]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    root = tmp_path_factory.mktemp("tutorial")
    with serve(root / "cache", root / "server.log", shipped=True) as started:
        yield started


def plain(text):
    return " ".join(text.split())


@pytest.mark.parametrize(("link", "quotes"), list(steps()), ids=[link for link, _ in steps()])
def test_a_step(page, shipped, link, quotes):
    """Every quotation is on the page, which is at the card that the link names.

    What is left out of a quotation is marked.
    """
    visit(page, shipped.url + link)
    if card := link.partition("#")[2]:
        expect(page.locator(f".st-key-card-{card}")).to_be_in_viewport()
    shown = plain(page.get_by_test_id("stMain").inner_text())
    for quote in quotes:
        for part in quote.split(" [...] "):
            assert part in shown
    no_trouble(page)


def test_every_step_says_what_one_should_see():
    """It quotes a page, or shows what a command prints; the first and the last step lead there."""
    for step in TEXT.split("\n## ")[2:-1]:
        assert re.search(r"^> |^```text$", step, re.MULTILINE), step[:20]
