"""The first link to a page of a server that was just started."""

import pytest
from playwright.sync_api import Page, expect

from tests.support.server import serve

WATCH = """
new MutationObserver(() => {
  if (document.body?.innerText.includes("Page not found")) window.flashed = true;
}).observe(document, { childList: true, subtree: true, characterData: true });
"""


@pytest.mark.browser
def test_the_first_deep_link_finds_its_page(page: Page, tmp_path):
    page.add_init_script(WATCH)
    with serve(tmp_path / "cache", tmp_path / "server.log") as server:
        page.goto(server.link("/methods"))
        expect(page.get_by_role("heading", level=1)).to_have_text("Methods")
        assert not page.evaluate("window.flashed === true")
