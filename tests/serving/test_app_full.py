"""A server that is full, seen in a browser."""

import json
import time
import urllib.request

import pytest
from playwright.sync_api import expect

from tests.support.server import PATIENCE, serve
from tests.support.visit import visit

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def until_empty(url):
    end = time.monotonic() + PATIENCE
    while True:
        with urllib.request.urlopen(f"{url}/health") as answer:
            if json.load(answer)["sessions"] == 0:
                return
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    root = tmp_path_factory.mktemp("small")
    with serve(
        root / "cache", root / "server.log", settings={"POSKERNEL_MAX_SESSIONS": "1"}
    ) as server:
        yield f"{server.url}/methods"


def test_a_reader_is_told_and_gets_in_later(small, new_context):
    """Also in a second tab of who is in, who can reload; a page that is closed makes room."""
    first = new_context().new_page()
    visit(first, small)
    tab, other = first.context.new_page(), new_context().new_page()
    for page in (tab, other):
        answer = page.goto(small)
        assert 503 == answer.status
        assert "30" == answer.headers["retry-after"]
        expect(page.get_by_text("This server is full: 1 page is open")).to_be_visible()
        expect(page).to_have_title("PosKernel")

    assert 200 == first.reload().status
    expect(first.get_by_role("heading", name="Methods", level=1)).to_be_visible()
    first.close()
    until_empty(small.removesuffix("/methods"))
    other.get_by_role("link", name="Try again").click()

    expect(other.get_by_role("heading", name="Methods", level=1)).to_be_visible()
