"""A server that was just started, and one that is full, seen in a browser."""

import pytest
from playwright.sync_api import expect

from tests.serving.test_proxy import sessions
from tests.support import until
from tests.support.server import PATIENCE, serve
from tests.support.visit import visit

pytestmark = [pytest.mark.browser, pytest.mark.slow]


WATCH = """
new MutationObserver(() => {
  if (document.body?.innerText.includes("Page not found")) window.flashed = true;
}).observe(document, { childList: true, subtree: true, characterData: true });
"""


def test_a_reader_is_told_and_gets_in_later(tmp_path, new_context):
    """Also in a second tab of who is in, who can reload; a page that is closed makes room.

    The first link to a page finds it at once.
    """
    one = {"POSKERNEL_MAX_SESSIONS": "1"}
    with serve(tmp_path / "cache", tmp_path / "server.log", settings=one) as server:
        small = f"{server.url}/methods"
        first = new_context().new_page()
        first.add_init_script(WATCH)
        visit(first, small)
        assert not first.evaluate("window.flashed === true")
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
        until(lambda: not sessions(server), PATIENCE)
        other.get_by_role("link", name="Try again").click()

        expect(other.get_by_role("heading", name="Methods", level=1)).to_be_visible()
