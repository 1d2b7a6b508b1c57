"""The tutorial, followed link by link: each page shows what the text says one should see."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support import ROOT
from tests.support.bound import heads_of_cards, opened_as_linked

TEXT = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
HERE = "http://localhost:8501"
LINK = re.compile(rf"\]\({HERE}(/[^)]*)\)")
MARKS = re.compile(r"(?<=\])\([^)]*\)|:\w+(?=\[)|[][]|\\(?=\W)|\*\*")
QUOTED = re.compile(r"^> (.*(?:\n> .*)*)", re.MULTILINE)


def steps():
    """The links, in order, each with the quotations between it and the next."""
    _, *parts = LINK.split(TEXT)
    for link, text in zip(parts[::2], parts[1::2], strict=True):
        yield link, [each.replace("\n> ", " ") for each in QUOTED.findall(text)]


def shown(app):
    """All words of a page, without the marks of Markdown."""
    kinds = (app.title, app.header, app.subheader, app.markdown, app.caption, app.button)
    words = [getattr(each, "label", "") or each.value for kind in kinds for each in kind]
    words += [text for head in heads_of_cards(app) for text in (head["title"], head["finding"])]
    return " ".join(MARKS.sub("", " ".join(words)).split())


QUOTES = [(link, quotes) for link, quotes in steps() if quotes]


@pytest.mark.parametrize(("link", "quotes"), QUOTES, ids=[link for link, _ in QUOTES])
def test_a_step(shipped_only, link, quotes):
    """Every quotation is on the page; what is left out of one is marked."""
    parts = urlsplit(link)
    app = opened_as_linked(parts.path.strip("/"), **parse_qs(parts.query))
    assert not app.exception
    words = shown(app)
    for quote in quotes:
        for part in quote.split(" [...] "):
            assert part in words


def test_every_step_says_what_one_should_see():
    """It quotes a page, or shows what a command prints; the first and the last step lead there."""
    for step in TEXT.split("\n## ")[2:-1]:
        assert re.search(r"^> |^```text$", step, re.MULTILINE), step[:20]
